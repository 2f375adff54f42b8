package migration_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/internal/migration/policy"
)

// TestFiles migrates testdata/*.old.yaml and wants the file *.new.yaml beside it.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.old.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("Got the files %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			old, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(file, "old.yaml") + "new.yaml")
			if err != nil {
				t.Fatal(err)
			}
			var got, warnings bytes.Buffer
			if err := migration.Run(bytes.NewReader(old), &got, &warnings, false); err != nil {
				t.Fatal(err)
			}
			if warnings.Len() > 0 {
				t.Errorf("Got the warnings %s", warnings.String())
			}
			if diff := cmp.Diff(got.String(), string(want)); diff != "" {
				t.Errorf("The manifests differ (- got, + want):\n%s", diff)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	const nothing = "nothing to migrate: "
	const strategies = "seLinux: {rule: RunAsAny}, runAsUser: {rule: RunAsAny}, supplementalGroups: {rule: RunAsAny}, fsGroup: {rule: RunAsAny}"
	for name, tc := range map[string]struct{ in, want string }{
		"nothing":                 {"", nothing},
		"only comments":           {"# nothing\n---\n# at all\n", nothing},
		"other objects":           {"{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}", nothing},
		"a policy of Postern":     {"{apiVersion: policy.postern.dev/v1, kind: PodSecurityPolicy, metadata: {name: p}, spec: {" + strategies + "}}", nothing},
		"an empty list":           {"{apiVersion: v1, kind: List, items: []}", nothing},
		"no YAML":                 {"a: b\n---\n\tx", "document 2: "},
		"a text":                  {"Error from server (NotFound)", "document 1: "},
		"an unknown field":        {"{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: p}, spec: {" + strategies + ", hostNetworks: true}}", `document 1: PodSecurityPolicy p: unknown field "spec.hostNetworks"`},
		"another type":            {"{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: p}, spec: {" + strategies + ", volumes: all}}", "document 1: PodSecurityPolicy p: json: cannot unmarshal string"},
		"a field twice":           {"{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, kind: x}", `document 1: line 1: key "kind" is there twice`},
		"rules that are no list":  {"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, rules: x}", "document 1: Role r: "},
		"a mistake inside a list": {"{apiVersion: v1, kind: List, items: [{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: p}, spec: {x: 1}}]}", `document 1: PodSecurityPolicy p: unknown field "spec.x"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := migration.Run(strings.NewReader(tc.in), &out, &out, false)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Got %v, want %q", err, tc.want)
			}
			if out.Len() > 0 {
				t.Errorf("Got the output %q beside an error", out.String())
			}
		})
	}
}

// TestRelatedOnly gives both a role that allows to use policies and a role that reads them.
func TestRelatedOnly(t *testing.T) {
	const in = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: users}, rules: [{apiGroups: [extensions], resources: ['*'], verbs: ['*']}]}\n---\n" +
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: readers}, rules: [{apiGroups: [policy], resources: [podsecuritypolicies], verbs: [get]}]}\n"
	for relatedOnly, want := range map[bool][]string{true: {"users"}, false: {"users", "readers"}} {
		var out, warnings bytes.Buffer
		if err := migration.Run(strings.NewReader(in), &out, &warnings, relatedOnly); err != nil || (warnings.String() == "warning: left out what is not related to podsecuritypolicies: 1 Role\n") != relatedOnly {
			t.Fatalf("Got %v and the warnings %s", err, warnings.String())
		}
		var got []string
		for _, m := range regexp.MustCompile(`name: (\w+)`).FindAllStringSubmatch(out.String(), -1) {
			got = append(got, m[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("relatedOnly=%t: got the roles %q, want %q", relatedOnly, got, want)
		}
	}
}
