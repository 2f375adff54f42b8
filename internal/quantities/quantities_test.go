package quantities_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/internal/quantities"
)

// near are texts of quantities, and other texts, that decode as they always did.
var near = []string{
	"1", "0", "-1", "+3", "100m", "1e3", "1E3", "1e-3", "1E", "9E", "12.5Gi", ".5", "9223372036854775807", "1000000000000000000000", "0.000000001",
	"1e1000", "1e-1000", "1e+1000", "1e0000001000", "1.5e1000", strings.Repeat("9", quantities.MaxLength), strings.Repeat("0", 70) + "1", "12345678901234567890e10", "", "x", "e", "1e", "1e+", "abc1e5", "1e5Ki", "1e1001Ki", "0e0",
}

// far are texts of far quantities, with their values. One that no API server writes has none.
var far = map[string]string{
	"1e1001": "9223372036854775807", "1e1000000000": "9223372036854775807", "-1E+1000000000": "-9223372036854775807", "1.5e1000000000": "9223372036854775807",
	"1e99999999999999999999": "9223372036854775807", "1e00000001000000": "9223372036854775807", "0e1000000000": "0", "0.0e-1000000000": "0", "e1000000000": "0",
	"1e-1001": "1n", "1e-1000000000": "1n", "-2e-1000000000": "-1n", "123456789012345678901234567890e1000000000": "9223372036854775807",
	nines: "9223372036854775807", "-" + nines: "-9223372036854775807", nines + "Ei": "9223372036854775807", nines + "n": "9223372036854775807",
	nines + "e-900": "9223372036854775807", "+" + nines + "E5": "9223372036854775807",
	zeros + "1": "1", "-" + zeros + "5e" + zeros + "3": "-5e03", zeros + "12.5Gi": "12800Mi", "1e+" + zeros + "3": "1e+03", zeros: "0", zeros + "e" + zeros: "0",
	zeros + "1e1000000000": "9223372036854775807", "1e-" + zeros + "1000000000": "1n",
	nines + "e1000000": "9223372036854775807", "-" + nines + "E+1001": "-9223372036854775807", nines[:1200] + "e-1000": "9223372036854775807",
	"0." + nines: "", nines + "e-1000000": "", nines + "." + nines: "",
}

var nines, zeros = strings.Repeat("9", 1_000_000), strings.Repeat("0", 1_000_000)

func TestUnmarshal(t *testing.T) {
	for _, text := range near {
		for _, json := range []string{`"` + text + `"`, `" ` + text + ` "`, text, "null"} {
			var got, want resource.Quantity
			err, wantErr := quantities.Unmarshal([]byte(json), &got), want.UnmarshalJSON([]byte(json))
			if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %#v, %v, want %#v, %v", json, got, err, want, wantErr)
			}
		}
		if quantities.IsFar(text) || quantities.Contains([]byte(`{"a":"`+text+`"}`)) {
			t.Errorf("%q is far, want near", text)
		}
	}
	for text, want := range far {
		for _, json := range []string{`"` + text + `"`, `" ` + text + ` "`, text} {
			var got resource.Quantity
			err := quantities.Unmarshal([]byte(json), &got)
			switch {
			case want == "" && !errors.Is(err, quantities.ErrFar):
				t.Errorf("%.100s: got %v, want %v", json, err, quantities.ErrFar)
			case want != "" && (err != nil || got.String() != want || got.Cmp(resource.MustParse(want)) != 0):
				t.Errorf("%.100s: got %s, %v, want %s", json, got.String(), err, want)
			}
			if !quantities.Contains([]byte(`{"a":[1, ` + json + `]}`)) {
				t.Errorf("%.100s is not found", json)
			}
		}
		if !quantities.IsFar(text) || !quantities.IsFar([]byte(text)) {
			t.Errorf("%.100s is near, want far", text)
		}
	}
	for _, text := range []string{nines + "x", zeros + "x", nines + "e", nines + "EiB", "1e1000000000x", "xe1000000000", "--1e1000000000", "1..5e1000000000", "1e2e1000000000"} {
		var got resource.Quantity
		if err := quantities.Unmarshal([]byte(`"`+text+`"`), &got); err == nil {
			t.Errorf("%.50s…%s: got %s, want an error", text, text[len(text)-3:], got.String())
		}
	}
}

// TestWhatAPIServersWrite parses random texts and writes them, as API servers do.
func TestWhatAPIServersWrite(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	digits := func(most int) string {
		out := make([]byte, r.IntN(most))
		for i := range out {
			out[i] = "0000123456789"[r.IntN(13)]
		}
		return string(out)
	}
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	parsed := 0
	for range 5_000 {
		text := pick("", "-", "+") + digits(2500) + pick("", "", "."+digits(30)) + pick("", "n", "u", "m", "k", "M", "E", "Ki", "Mi", "Ei", "e"+pick("", "-", "+")+digits(5))
		want, err := resource.ParseQuantity(text)
		if err != nil {
			continue
		}
		parsed++
		written, err := want.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var got resource.Quantity
		if err := quantities.Unmarshal(written, &got); err != nil {
			t.Fatalf("%s was written as %s: %v", text, written, err)
		}
		near := got.Cmp(resource.MustParse("9223372036854775806")) < 0 && got.Cmp(resource.MustParse("-9223372036854775806")) > 0
		if got.Sign() != want.Sign() || near && got.Cmp(want) != 0 {
			t.Fatalf("%s was written as %s: got %s", text, written, got.String())
		}
	}
	if parsed < 2_500 {
		t.Errorf("Only %d texts are quantities", parsed)
	}
}

// TestNotContained covers texts that look like parts of far quantities, such as digests.
func TestNotContained(t *testing.T) {
	for _, text := range []string{
		`"sha256:98e76543210ab"`, `"git-12e45678"`, `"12e45678-web"`, `"1.2e45678.3a"`, `{"12":1e3}`, `[1e10,"` + strings.Repeat("a1", 100) + `"]`, ``, `"e"`,
	} {
		if quantities.Contains([]byte(text)) {
			t.Errorf("%s has a far quantity, want none", text)
		}
	}
}

func TestIn(t *testing.T) {
	inside := func(field string, value any) any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a"}, map[string]any{field: value}}}}
	}
	for _, c := range []struct {
		content any
		want    string
	}{
		{inside("limits", map[string]any{"cpu": "1", "memory": "1e1000000000"}), ".spec.containers[1].limits"},
		{inside("requests", map[string]any{"cpu": " 1e-1000000000 "}), ".spec.containers[1].requests"},
		{inside("overhead", map[string]any{"cpu": strings.Repeat("9", quantities.MaxCustom+1)}), ".spec.containers[1].overhead"},
		{inside("overhead", map[string]any{"cpu": " " + strings.Repeat("9", quantities.MaxCustom)}), ""},
		{inside("emptyDir", map[string]any{"sizeLimit": "1e101"}), ".spec.containers[1].emptyDir.sizeLimit"},
		{inside("emptyDir", map[string]any{"sizeLimit": "1e100"}), ""},
		{inside("resourceFieldRef", map[string]any{"divisor": "-1e-101"}), ".spec.containers[1].resourceFieldRef.divisor"},
		{inside("resourceFieldRef", map[string]any{"divisor": 1e300}), ""},
		{inside("limits", map[string]any{"cpu": int64(1), "memory": nil}), ""},
		{inside("limits", "1e1000000000"), ""},
		{inside("name", "1e1000000000"), ""},
		// Text that users choose.
		{inside("labels", map[string]any{"sizeLimit": "1e1000", "divisor": "1e1000", "limits": "1e1000"}), ""},
		{nil, ""},
	} {
		if got := quantities.In(c.content); got != c.want {
			t.Errorf("%v: got %q, want %q", c.content, got, c.want)
		}
	}
}
