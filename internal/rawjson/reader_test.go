package rawjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/rawjson"
)

// isValid reports whether a Reader takes text for one value.
func isValid(text []byte) bool {
	r := rawjson.Reader{Text: text, MaxDepth: rawjson.MaxDepth}
	return r.Skip() && r.Next() == 0 && r.At == len(text)
}

// TestDeepText has text of several depths, since a Reader keeps account of 127 levels at a time.
func TestDeepText(t *testing.T) {
	for _, depth := range []int{1, 2, 63, 64, 126, 127, 128, 129, 254, 255, 256, 1000, 5000} {
		text := strings.Repeat(`[{"a":`, depth) + `[1, {}]` + strings.Repeat(`}, "b"]`, depth)
		for name, text := range map[string]string{
			"as it is": text, "an object ends an array": strings.Replace(text, "]", "}", 1), "an array ends an object": strings.Replace(text, "}", "]", 1),
			"the end is missing": text[:len(text)-1], "an end too much": text + "]", "a comma too much": strings.Replace(text, "}]", "},]", 1),
		} {
			if got, want := isValid([]byte(text)), json.Valid([]byte(text)); got != want {
				t.Errorf("Depth %d, %s: got %t, want %t", 2*depth, name, got, want)
			}
		}
	}
}

// FuzzReader compares a Reader with encoding/json, and checks that Values of any text end.
func FuzzReader(f *testing.F) {
	for _, text := range []string{`{"a":[1,-2.5e+3,null,true,false,"\u00e9\n"],"b":{}}`, `[`, `{"a"`, `"\x"`, `01`, " 1 ", "\"\x01\"", `[1,]`, strings.Repeat("[", 300)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := isValid(text), json.Valid(text); got != want {
			t.Errorf("%q: got %t, want %t", text, got, want)
		}
		v := rawjson.Of(text)
		n := v.Count()
		for range v.Members() {
			n--
		}
		for range v.Items() {
			n--
		}
		if n < 0 {
			t.Errorf("%q has more members or items than values", text)
		}
	})
}
