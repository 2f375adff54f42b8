package patch

import (
	"bytes"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// FuzzDiff changes a few random places of any document that decodes as an object. The patch
// must produce exactly the changed object.
func FuzzDiff(f *testing.F) {
	all := kinds(f)
	index := func(gvk schema.GroupVersionKind) int {
		for i, other := range all {
			if gvk == other {
				return i
			}
		}
		f.Fatalf("There is no kind %s", gvk)
		return 0
	}
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	for i, raw := range []string{
		`{"metadata":{"name":"a","labels":{"a/b":"~"}},"spec":{"containers":[{"name":"a","env":[{"name":"X"}],"x":{}},null]}}`,
		`{"spec":{"containers":null,"volumes":[],"tolerations":[{"key":"a"},{"key":"a"}],"securityContext":{}}}`,
		`{"metadata":null,"spec":{"ports":[{"port":53,"protocol":"TCP"},{"port":53,"protocol":"UDP","targetPort":"x"}]}}`,
		` { } `,
		`{"data":{"a":"AAE=","b":null,"":""},"stringData":{"~1":"/"}}`,
		`{"spec":{"replicas":0,"strategy":{"rollingUpdate":{"maxSurge":"25%"}},"template":{"spec":{}}}}`,
	} {
		f.Add(uint16(index(coreKind("Pod"))), []byte(raw), int64(i))
		f.Add(uint16(index(coreKind("Service"))), []byte(raw), int64(i))
		f.Add(uint16(index(coreKind("Secret"))), []byte(raw), int64(i))
		f.Add(uint16(index(apps.WithKind("Deployment"))), []byte(raw), int64(i))
	}
	f.Fuzz(func(t *testing.T, kind uint16, raw []byte, seed int64) {
		gvk := all[int(kind)%len(all)]
		if _, err := decode(raw, gvk); err != nil || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
			t.Skip("not an object")
		}
		// Decoders handle duplicate keys differently.
		var doc any
		if strict, err := kjson.UnmarshalStrict(raw, &doc); err != nil || len(strict) > 0 {
			t.Skip("not a document that an API server sends")
		}
		patched(t, gvk, string(raw), func(obj runtime.Object) { newChance(seed).scramble(obj) })
		patch, _ := patched(t, gvk, string(raw), func(runtime.Object) {})
		if patch != nil {
			t.Errorf("Got the patch %s of equal objects, want nil", patch)
		}
	})
}
