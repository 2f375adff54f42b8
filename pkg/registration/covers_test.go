package registration

import (
	"testing"

	kjson "sigs.k8s.io/json"
)

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		name, have, want string
		covers           bool
	}{
		{"the same", `{"a":{"b":[1,"x",true]}}`, `{"a":{"b":[1,"x",true]}}`, true},
		{"more", `{"a":1,"b":2}`, `{"a":1}`, true},
		{"less", `{"a":1}`, `{"a":1,"b":2}`, false},
		{"another value", `{"a":1}`, `{"a":2}`, false},
		{"another type", `{"a":"1"}`, `{"a":1}`, false},
		{"a list for a map", `{"a":[]}`, `{"a":{}}`, false},
		{"a map for a list", `{"a":{}}`, `{"a":[]}`, false},
		{"nothing for a map", `{}`, `{"a":{}}`, false},
		{"null is as good as nothing", `{}`, `{"a":null}`, true},
		{"null for a value", `{"a":null}`, `{"a":1}`, false},
		{"a value for null", `{"a":1}`, `{"a":null}`, false},
		{"a list is compared as a whole", `{"a":[1,2,3]}`, `{"a":[1,2]}`, false},
		{"in order", `{"a":[2,1]}`, `{"a":[1,2]}`, false},
		{"items without names", `{"a":[{"x":1,"y":2}]}`, `{"a":[{"x":1}]}`, true},
		{"items by name", `{"a":[{"name":"o"},{"name":"p","x":1,"y":2}]}`, `{"a":[{"name":"p","x":1}]}`, true},
		{"items by name in another order", `{"a":[{"name":"o"},{"name":"p"}]}`, `{"a":[{"name":"p"},{"name":"o"}]}`, true},
		{"no item of the name", `{"a":[{"name":"o"}]}`, `{"a":[{"name":"p"}]}`, false},
		{"another value of the name", `{"a":[{"name":"o","x":1}]}`, `{"a":[{"name":"o","x":2}]}`, false},
		{"names on one side", `{"a":[{"name":"o"}]}`, `{"a":[{"x":1}]}`, false},
		{"no items any more", `{"a":[]}`, `{"a":[{"name":"o"}]}`, false},
		{"more in a selector", `{"objectSelector":{"matchLabels":{"a":"b"},"matchExpressions":[]}}`, `{"objectSelector":{"matchLabels":{"a":"b"}}}`, false},
		{"more labels", `{"namespaceSelector":{"matchLabels":{"a":"b","c":"d"}}}`, `{"namespaceSelector":{"matchLabels":{"a":"b"}}}`, false},
		{"a selector", `{"namespaceSelector":{"matchLabels":{"a":"b"}}}`, `{"namespaceSelector":{"matchLabels":{"a":"b"}}}`, true},
		{"a selector that is not wanted", `{"namespaceSelector":{"matchLabels":{"a":"b"}}}`, `{}`, true},
		{"more in a rule", `{"rules":[{"resources":["pods"],"scope":"Cluster"}]}`, `{"rules":[{"resources":["pods"]}]}`, false},
		{"no items wanted", `{"a":[{"name":"o"}]}`, `{"a":[]}`, true},
	} {
		var have, want any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(c.have), &have); err != nil {
			t.Fatal(err)
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if got := covers(have, want); got != c.covers {
			t.Errorf("%s: %s covers %s: got %v, want %v", c.name, c.have, c.want, got, c.covers)
		}
	}
}
