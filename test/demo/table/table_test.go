package table_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/test/demo/table"
)

func TestWrite(t *testing.T) {
	for name, test := range map[string]struct {
		width int
		rows  [][]string
		want  []string
	}{
		"columns are aligned": {80, [][]string{{"A", "B", "C"}, {"one", "", "x"}, {"größer", "two", ""}}, []string{
			"A       B    C",
			"one          x",
			"größer  two",
		}},
		"wide cells go on below": {30, [][]string{{"NAME", "PATH"}, {"a", ".spec.containers[*].imagePullPolicy"}, {"b", "x"}}, []string{
			"NAME  PATH",
			"a     .spec.containers[*]",
			"      .imagePullPolicy",
			"b     x",
		}},
		"words are kept whole": {22, [][]string{{"A", "B"}, {"x", "three words go here, so"}}, []string{
			"A  B",
			"x  three words go",
			"   here, so",
		}},
		"a long word is cut": {13, [][]string{{"A", "B"}, {"x", "abcdefghijklmnopqrstuvw"}}, []string{
			"A  B",
			"x  abcdefghij",
			"   klmnopqrst",
			"   uvw",
		}},
		"the widest column yields": {40, [][]string{{"A", "B"}, {"a quite long cell", strings.Repeat("one two three ", 3)}}, []string{
			"A                  B",
			"a quite long cell  one two three one two",
			"                   three one two three",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := table.Write(&b, test.width, test.rows); err != nil {
				t.Fatal(err)
			}
			if want := strings.Join(test.want, "\n") + "\n"; b.String() != want {
				t.Errorf("Got\n%swant\n%s", b.String(), want)
			}
			for line := range strings.Lines(b.String()) {
				if got := utf8.RuneCountInString(strings.TrimRight(line, "\n")); got > test.width {
					t.Errorf("A line is %d wide, want %d at most: %s", got, test.width, line)
				}
			}
		})
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestWriteSaysThatItCouldNot(t *testing.T) {
	if err := table.Write(broken{}, 80, [][]string{{"A"}}); err == nil {
		t.Error("Got no error, want that of the writer")
	}
}
