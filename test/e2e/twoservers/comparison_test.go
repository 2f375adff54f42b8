package twoservers

import (
	"strings"
	"testing"
)

// TestComparison tests that the comparison finds differences. If it found none, all scenarios would pass.
func TestComparison(t *testing.T) {
	t.Parallel()
	denied := func(code int, reason, message string) answer {
		return answer{code: code, reason: reason, message: message, details: object{"name": "web"}}
	}
	stored := func(key, value string) answer {
		return answer{code: 201, details: object{}, object: object{"spec": object{key: value}}}
	}
	code, reason, message, no := 500, "", "other words", false
	aggregate := &step{Differs: &difference{InTree: inTree{Code: &code, Reason: &reason}}}
	for _, test := range []struct {
		name            string
		step            *step
		inTree, postern answer
		want            string // a part of the error, or empty if no error is expected
	}{
		{"nothing", &step{}, denied(403, "Forbidden", "no"), denied(403, "Forbidden", "no"), ""},
		{"a code", &step{}, denied(500, "Forbidden", "no"), denied(403, "Forbidden", "no"), "the code differs"},
		{"a reason", &step{}, denied(403, "", "no"), denied(403, "Forbidden", "no"), "the reason differs"},
		{"a message", &step{}, denied(403, "Forbidden", "no!"), denied(403, "Forbidden", "no"), "the message differs"},
		{"details", &step{}, answer{code: 403, details: object{}}, answer{code: 403, details: object{"kind": "pods"}}, "the details differs"},
		{"warnings", &step{}, answer{code: 201, warnings: []string{"old"}}, answer{code: 201}, "the list of warnings differs"},
		{"objects", &step{}, stored("nodeName", "a"), stored("nodeName", "b"), "the object differs"},
		{"an object that only one has", &step{}, stored("nodeName", "a"), answer{code: 201, details: object{}}, "the object differs"},
		{"a verdict", &step{}, stored("nodeName", "a"), denied(403, "Forbidden", "no"), "the code differs"},
		{"what is listed", aggregate, denied(500, "", "no"), denied(403, "Forbidden", "no"), ""},
		{"more than is listed", aggregate, denied(500, "", "no"), denied(403, "Forbidden", "none"), "the message differs"},
		{"less than is listed", aggregate, denied(403, "Forbidden", "no"), denied(403, "Forbidden", "no"), "the code does not differ any more"},
		{
			"a listed message", &step{Differs: &difference{InTree: inTree{Message: &message}}},
			denied(403, "Forbidden", "no"), denied(403, "Forbidden", "no"), "the message does not differ any more",
		},
		{
			"a listed verdict", &step{Differs: &difference{InTree: inTree{Allowed: &no}}},
			denied(403, "Forbidden", "no"), stored("nodeName", "a"), "",
		},
		{
			"a listed field", &step{Differs: &difference{InTree: inTree{Object: object{"spec.nodeName": "a"}}}},
			stored("nodeName", "a"), stored("nodeName", "b"), "",
		},
		{
			"a listed field with another value", &step{Differs: &difference{InTree: inTree{Object: object{"spec.nodeName": "a"}}}},
			stored("nodeName", "c"), stored("nodeName", "b"), `spec.nodeName in-tree is "c", want "a"`,
		},
		{
			"a listed field that is equal", &step{Differs: &difference{InTree: inTree{Object: object{"spec.nodeName": "a"}}}},
			stored("nodeName", "a"), stored("nodeName", "a"), "the spec.nodeName does not differ any more",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.step.compare(test.inTree, test.postern)
			if got := err != nil; got != (test.want != "") || got && !strings.Contains(err.Error(), test.want) {
				t.Errorf("Got %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestWant tests that check finds an answer that differs from the expected answer of a step.
func TestWant(t *testing.T) {
	t.Parallel()
	w := want{Allowed: true, Object: object{"a": []any{object{"b": "c"}}, "gone": nil}}
	for name, test := range map[string]struct {
		want want
		got  answer
		ok   bool
	}{
		"the object":             {w, answer{code: 201, object: object{"a": []any{object{"b": "c", "more": 1.0}}, "more": true}}, true},
		"another value":          {w, answer{code: 201, object: object{"a": []any{object{"b": "d"}}}}, false},
		"a longer list":          {w, answer{code: 201, object: object{"a": []any{object{"b": "c"}, object{}}}}, false},
		"what is not to be":      {w, answer{code: 201, object: object{"a": []any{object{"b": "c"}}, "gone": "here"}}, false},
		"a denial":               {w, answer{code: 403, message: "no"}, false},
		"another message":        {want{Code: 403, Message: "no"}, answer{code: 403, message: "no!"}, false},
		"the start of a message": {want{Code: 403, Message: "no…"}, answer{code: 403, message: "no!"}, true},
		"a warning":              {want{Allowed: true}, answer{code: 200, warnings: []string{"old"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.want.check(test.got); (err == nil) != test.ok {
				t.Errorf("Got %v, want ok to be %t", err, test.ok)
			}
		})
	}
}
