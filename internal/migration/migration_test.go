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

	"github.com/postern-dev/postern/internal/migration"
)

// TestFiles migrates *.old.yaml in the directories of testdata and wants the file *.new.yaml beside it.
func TestFiles(t *testing.T) {
	for directory, of := range map[string]struct {
		run     migration.Run
		atLeast int
	}{"psp": {migration.PodSecurityPolicies, 3}, "podpreset": {migration.PodPresets, 1}} {
		files, err := filepath.Glob(filepath.Join("testdata", directory, "*.old.yaml"))
		if err != nil || len(files) < of.atLeast {
			t.Fatalf("Got the files %v, %v", files, err)
		}
		for _, file := range files {
			t.Run(filepath.Join(directory, filepath.Base(file)), func(t *testing.T) {
				old, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				want, err := os.ReadFile(strings.TrimSuffix(file, "old.yaml") + "new.yaml")
				if err != nil {
					t.Fatal(err)
				}
				var got, warnings bytes.Buffer
				if err := of.run(bytes.NewReader(old), &got, &warnings, false); err != nil {
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
}

func TestMistakes(t *testing.T) {
	const nothing = "nothing to migrate: "
	const strategies = "seLinux: {rule: RunAsAny}, runAsUser: {rule: RunAsAny}, supplementalGroups: {rule: RunAsAny}, fsGroup: {rule: RunAsAny}"
	psp, podPreset := migration.PodSecurityPolicies, migration.PodPresets
	for name, tc := range map[string]struct {
		run      migration.Run
		in, want string
	}{
		"nothing":                      {psp, "", nothing},
		"only comments":                {psp, "# nothing\n---\n# at all\n", nothing},
		"other objects":                {psp, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}", nothing},
		"a policy of Postern":          {psp, "{apiVersion: policy.postern.dev/v1, kind: PodSecurityPolicy, metadata: {name: p}, spec: {" + strategies + "}}", nothing},
		"an empty list":                {psp, "{apiVersion: v1, kind: List, items: []}", nothing},
		"no YAML":                      {psp, "a: b\n---\n\tx", "document 2: "},
		"a text":                       {psp, "Error from server (NotFound)", "document 1: "},
		"an unknown field":             {psp, "{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: p}, spec: {" + strategies + ", hostNetworks: true}}", `document 1: PodSecurityPolicy p: unknown field "spec.hostNetworks"`},
		"another type":                 {psp, "{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: p}, spec: {" + strategies + ", volumes: all}}", "document 1: PodSecurityPolicy p: json: cannot unmarshal string"},
		"a field twice":                {psp, "{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, kind: x}", `document 1: line 1: key "kind" is there twice`},
		"rules that are no list":       {psp, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, rules: x}", "document 1: Role r: "},
		"a mistake inside a list":      {psp, "{apiVersion: v1, kind: List, items: [{apiVersion: policy/v1beta1, kind: PodSecurityPolicy, metadata: {name: p}, spec: {x: 1}}]}", `document 1: PodSecurityPolicy p: unknown field "spec.x"`},
		"no preset":                    {podPreset, "", nothing},
		"a preset of Postern":          {podPreset, "{apiVersion: settings.postern.dev/v1alpha1, kind: PodPreset, metadata: {name: p}}", nothing},
		"a role for pods":              {podPreset, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, rules: [{apiGroups: [''], resources: ['*'], verbs: ['*']}]}", nothing},
		"an unknown field of a preset": {podPreset, "{apiVersion: settings.k8s.io/v1alpha1, kind: PodPreset, metadata: {name: p}, spec: {envs: []}}", `document 1: PodPreset p: unknown field "spec.envs"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := tc.run(strings.NewReader(tc.in), &out, &out, false)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Got %v, want %q", err, tc.want)
			}
			if out.Len() > 0 {
				t.Errorf("Got the output %q beside an error", out.String())
			}
		})
	}
}

// TestRelatedOnly gives each migration a role that is related to it, and a role that is not.
func TestRelatedOnly(t *testing.T) {
	for resource, tc := range map[string]struct {
		run             migration.Run
		related, others string
	}{
		"podsecuritypolicies": {migration.PodSecurityPolicies, "{apiGroups: [extensions], resources: ['*'], verbs: ['*']}", "{apiGroups: [policy], resources: [podsecuritypolicies], verbs: [get]}"},
		"podpresets":          {migration.PodPresets, "{apiGroups: [settings.k8s.io], resources: [podpresets], verbs: [get]}", "{apiGroups: [''], resources: [pods], verbs: [get]}"},
	} {
		in := "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: related}, rules: [" + tc.related + "]}\n---\n" +
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: others}, rules: [" + tc.others + "]}\n"
		for relatedOnly, want := range map[bool][]string{true: {"related"}, false: {"related", "others"}} {
			var out, warnings bytes.Buffer
			err := tc.run(strings.NewReader(in), &out, &warnings, relatedOnly)
			if err != nil || (warnings.String() == "warning: left out what is not related to "+resource+": 1 Role\n") != relatedOnly {
				t.Fatalf("%s: got %v and the warnings %s", resource, err, warnings.String())
			}
			var got []string
			for _, m := range regexp.MustCompile(`name: (\w+)`).FindAllStringSubmatch(out.String(), -1) {
				got = append(got, m[1])
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, relatedOnly=%t: got the roles %q, want %q", resource, relatedOnly, got, want)
			}
		}
	}
}
