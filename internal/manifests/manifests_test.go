package manifests_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/internal/manifests"
)

// moved is written for the kind Moved, which the Rewriter of the tests rewrites.
const moved = "apiVersion: new/v1\nkind: Moved\nmetadata:\n  name: m\n"

// rewrite moves the kind Moved to another group, and fails for the kind Wrong.
func rewrite(u *unstructured.Unstructured) (any, error) {
	switch u.GetKind() {
	case "Moved":
		u.SetAPIVersion("new/v1")
		return u.Object, nil
	case "Wrong":
		return nil, errors.New("it is wrong")
	}
	return nil, nil
}

func TestMetadata(t *testing.T) {
	for name, tc := range map[string]struct{ in, want, notes string }{
		"of an object that is rewritten": {
			"{apiVersion: old/v1, kind: Moved, metadata: {name: m, uid: u, ownerReferences: [{uid: x}]}}",
			moved, "document 1: Moved m: dropped metadata.ownerReferences\n",
		},
		"of an object that passes": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns, ownerReferences: [{uid: x}], finalizers: [example.com/f]}, data: {a: b}}",
			"apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  name: c\n  namespace: ns\n",
			"document 1: ConfigMap ns/c: dropped metadata.finalizers, metadata.ownerReferences\n",
		},
		"of an item of a list": {
			"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: u, finalizers: [example.com/f]}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}]}",
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n",
			"document 1: ConfigMap a: dropped metadata.finalizers\n",
		},
		"of an object that is being deleted": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, deletionTimestamp: "2020-01-01T00:00:00Z", deletionGracePeriodSeconds: 0, finalizers: [example.com/f]}}`,
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n",
			"document 1: ConfigMap c: dropped metadata.deletionTimestamp, metadata.finalizers\n",
		},
		"that the API server sets": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, creationTimestamp: null, generation: 1, managedFields: [{manager: m}], resourceVersion: "1", selfLink: /c, uid: u}}`,
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n", "",
		},
		"that kubectl sets": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}}`,
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n", "",
		},
		"that says nothing": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, ownerReferences: [], finalizers: null, deletionTimestamp: null}}",
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n", "",
		},
		"that stays": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, generateName: c-, namespace: ns, uid: u, labels: {a: b}, annotations: {a: 1, kubectl.kubernetes.io/last-applied-configuration: x}}}",
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n    a: 1\n  generateName: c-\n  labels:\n    a: b\n  name: c\n  namespace: ns\n", "",
		},
		"that stays as it is": {
			"# A comment.\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {}, labels: {a: b}}\n",
			"# A comment.\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {}, labels: {a: b}}\n", "",
		},
		"that is none": {"metadata: x\n", "metadata: x\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			in, want := tc.in, tc.want
			if want != moved {
				in, want = in+"\n---\n"+moved, want+"---\n"+moved
			}
			checkRewrite(t, in, want, tc.notes)
		})
	}
}

// checkRewrite rewrites documents and compares the output and the notes.
func checkRewrite(t *testing.T, in, want, notes string) {
	t.Helper()
	var out, said bytes.Buffer
	if err := manifests.Rewrite(strings.NewReader(in), &out, &said, rewrite); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(out.String(), want); diff != "" {
		t.Errorf("The output differs (- got, + want):\n%s", diff)
	}
	var warnings strings.Builder
	for line := range strings.Lines(notes) {
		warnings.WriteString("warning: " + line)
	}
	if diff := cmp.Diff(said.String(), warnings.String()); diff != "" {
		t.Errorf("The notes differ (- got, + want):\n%s", diff)
	}
}

// TestErrors wants an error for each document, and neither output nor notes beside it.
func TestErrors(t *testing.T) {
	const noted = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, finalizers: [example.com/f]}}\n---\n"
	for name, tc := range map[string]struct{ in, want string }{
		"nothing to rewrite": {noted, manifests.ErrUnchanged.Error()},
		"one document":       {noted + moved + "---\n{kind: Wrong, metadata: {name: w, namespace: ns}}", "document 3: Wrong ns/w: it is wrong"},
		"all documents": {
			"a: b\n---\n\tx\n---\n{kind: Wrong, metadata: {name: w}}\n---\n{kind: List, items: [{kind: Wrong, metadata: {name: v}}, {kind: Wrong, metadata: {name: u}}]}",
			"document 2: …\ndocument 3: Wrong w: it is wrong\ndocument 4: Wrong v: it is wrong\ndocument 4: Wrong u: it is wrong",
		},
		"an item that is no object": {moved + "---\n{kind: List, items: [x]}", "document 2: List: items member is not an object: …"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, said bytes.Buffer
			err := manifests.Rewrite(strings.NewReader(tc.in), &out, &said, rewrite)
			if err == nil || !matches(err.Error(), tc.want) {
				t.Errorf("Got the error\n%v\nwant\n%s", err, tc.want)
			}
			if out.Len()+said.Len() > 0 {
				t.Errorf("Got the output %q and the notes %q beside an error", out.String(), said.String())
			}
		})
	}
}

// matches reports whether both texts have the same lines. A line of want may end in an ellipsis.
func matches(got, want string) bool {
	gots, wants := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i, w := range wants {
		prefix, open := strings.CutSuffix(w, "…")
		if i >= len(gots) || !strings.HasPrefix(gots[i], prefix) || !open && gots[i] != w {
			return false
		}
	}
	return len(gots) == len(wants)
}
