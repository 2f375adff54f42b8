package rawjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/rawjson"
)

// decoded returns the result of encoding/json for a value, rebuilt with Members and Items.
func decoded(t *testing.T, v rawjson.Value) any {
	t.Helper()
	switch {
	case v.IsObject():
		out := map[string]any{}
		for name, value := range v.Members() {
			out[name.Text()] = decoded(t, value)
		}
		return out
	case v.IsArray():
		out := []any{}
		for item := range v.Items() {
			out = append(out, decoded(t, item))
		}
		return out
	}
	var out any
	if err := json.Unmarshal(v, &out); err != nil {
		t.Fatalf("Got the value %q: %v", v, err)
	}
	if v.IsNull() != (out == nil) {
		t.Errorf("IsNull of %q is %t", v, v.IsNull())
	}
	if s, ok := out.(string); ok && s != v.Text() {
		t.Errorf("Got text %q of %q, want %q", v.Text(), v, s)
	}
	return out
}

func seeds() []string {
	return []string{
		`null`, `true`, ` false `, `0`, `-1.5e+300`, `""`, `"a"`, `"\""`, `"\\"`, `"\\\""`, `"{[,:]}"`, `"\u00e9\n/\/"`, `"é☃"`,
		`{}`, `[]`, ` { } `, "\t[\n]\r", `[[],[[]],{}]`, `{"":{"":[]}}`, `[1,2 , 3]`, `["a","b\\"]`, `[null,true,-0]`,
		`{"a":1,"b":[true,{"c":"}"}],"d":null}`, `{ "a" : { "b" : "\"" } , "c" : [ ] }`,
		`{"a":1,"a":2}`, `{"\u0061":1,"k:{\"name\":\"x\"}":{".":{}}}`,
		"{\"\xff\":\"\xff\"}",
	}
}

func TestWalkingFindsWhatDecodingFinds(t *testing.T) {
	for _, text := range seeds() {
		var want any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := decoded(t, rawjson.Of([]byte(text))); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func TestValuesAreCutFromTheText(t *testing.T) {
	text := []byte(`{"a": [ 1 ,"x" ], "b" :{"c":2} }`)
	var got []string
	for name, value := range rawjson.Of(text).Members() {
		got = append(got, fmt.Sprintf("%s %s", name, value))
		_ = append(value, "overwritten"...)
	}
	if want := []string{`"a" [ 1 ,"x" ]`, `"b" {"c":2}`}; !slices.Equal(got, want) {
		t.Errorf("Got %q, want %q", got, want)
	}
	if bytes.Contains(text, []byte("over")) {
		t.Errorf("Appending to a value wrote into the text: %s", text)
	}
}

func TestWalkingStops(t *testing.T) {
	seen := 0
	for range rawjson.Of([]byte(`{"a":1,"b":2}`)).Members() {
		seen++
		break
	}
	for range rawjson.Of([]byte(`[1,2]`)).Items() {
		seen++
		break
	}
	if seen != 2 {
		t.Errorf("Got %d values after two stops, want 2", seen)
	}
}

func TestOtherValuesHaveNothingInside(t *testing.T) {
	for _, text := range []string{``, `1`, `"{}"`, `null`, `{`, `[`} {
		for range rawjson.Of([]byte(text)).Members() {
			t.Errorf("Got a member of %q", text)
		}
		for range rawjson.Of([]byte(text)).Items() {
			t.Errorf("Got an item of %q", text)
		}
	}
}

// FuzzWalk finds the same values as decoding in valid text, and terminates on any text.
func FuzzWalk(f *testing.F) {
	for _, text := range append(seeds(), `{`, `[`, `"`, `"\`, `{"a`, `{"a"`, `{"a":`, `{,}`, `[,,]`, `}`, `]`, `:`, `[1 2]`, `{"a" "b"}`, `[}`) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v := rawjson.Of(text)
		if !json.Valid(text) {
			for name, value := range v.Members() {
				_, _ = name.Text(), value.Text()
			}
			_ = slices.Collect(v.Items())
			return
		}
		var want any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Skip("valid, but not to be decoded: a number is too large")
		}
		if got := decoded(t, v); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	})
}

func TestCount(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "null": 1, "7": 1, `"a,b[{"`: 1, "{}": 1, "[ ]": 1, "[{},{}]": 3, `{"a":1,"b":[1,2]}`: 5, `[[[]]]`: 3, `{"a":{"b":"\",["}}`: 3, "[1": 2,
	} {
		if got := rawjson.Of([]byte(text)).Count(); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}
