package rawjson_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/postern-dev/postern/internal/rawjson"
)

// TestPathAt compares the path with the value whose type the decoder refused.
func TestPathAt(t *testing.T) {
	type item struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
		Count  int               `json:"count"`
		On     bool              `json:"on"`
	}
	type document struct {
		Items  []item            `json:"items"`
		Lists  [][]int           `json:"lists"`
		ByName map[string][]item `json:"byName"`
	}
	for text, want := range map[string]string{
		`{"items":[{"name":5}]}`:                        "items[0].name",
		`{"items":[{"name":"a"},{"name":{"a":1}}]}`:     "items[1].name",
		`{"items":[{"name":"a"},{"name":[]}]}`:          "items[1].name",
		`{"items":[{"name":"a","labels":{"b":true}}]}`:  "items[0].labels.b",
		`{"items":[{"labels":{"a":"\"]","b":null}},7]}`: "items[1]",
		`{"items":{"a":1}}`:                             "items",
		` { "lists" : [ [ 1 , 2 ] , [ 3 , "x" ] ] } `:   "lists[1][1]",
		`{"byName":{"a":[{"count":"5"}]}}`:              "byName.a[0].count",
		`{"byName":{"a":[{"on":1.5}]}}`:                 "byName.a[0].on",
		`{"byName":{"a":[{"count":1.5}]}}`:              "byName.a[0].count",
		`{"byName":{"a":"b"}}`:                          "byName.a",
		`["a"]`:                                         "",
		`"a"`:                                           "",
	} {
		var wrong *json.UnmarshalTypeError
		err := json.Unmarshal([]byte(text), &document{})
		if !errors.As(err, &wrong) {
			t.Errorf("%s: got error %v, want one of types", text, err)
			continue
		}
		if got := rawjson.PathAt([]byte(text), wrong.Offset); got != want {
			t.Errorf("%s: got path %q at %d, want %q", text, got, wrong.Offset, want)
		}
	}
	for _, offset := range []int64{-1, 0, 3, 100} {
		if got := rawjson.PathAt([]byte(`{"a":[1`), offset); got != "" {
			t.Errorf("Got path %q at %d of broken text, want none", got, offset)
		}
	}
}
