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

	"github.com/postern-dev/postern/internal/migration/settings"
)

// TestFiles migrates testdata/*.old.yaml and wants the file *.new.yaml beside it.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.old.yaml"))
	if err != nil || len(files) == 0 {
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
	for name, tc := range map[string]struct{ in, want string }{
		"nothing":             {"", nothing},
		"a preset of Postern": {"{apiVersion: settings.postern.dev/v1alpha1, kind: PodPreset, metadata: {name: p}}", nothing},
		"a role for pods":     {"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, rules: [{apiGroups: [''], resources: ['*'], verbs: ['*']}]}", nothing},
		"an unknown field":    {"{apiVersion: settings.k8s.io/v1alpha1, kind: PodPreset, metadata: {name: p}, spec: {envs: []}}", `document 1: PodPreset p: unknown field "spec.envs"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := migration.Run(strings.NewReader(tc.in), &out, &out, false)
			if err == nil || !strings.Contains(err.Error(), tc.want) || out.Len() > 0 {
				t.Errorf("Got %v and the output %q, want the error %q", err, out.String(), tc.want)
			}
		})
	}
}

// TestRelatedOnly gives both a role that reads presets and a role that reads pods.
func TestRelatedOnly(t *testing.T) {
	const in = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: presets}, rules: [{apiGroups: [settings.k8s.io], resources: [podpresets], verbs: [get]}]}\n---\n" +
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: pods}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}\n"
	for relatedOnly, want := range map[bool][]string{true: {"presets"}, false: {"presets", "pods"}} {
		var out, warnings bytes.Buffer
		if err := migration.Run(strings.NewReader(in), &out, &warnings, relatedOnly); err != nil || (warnings.String() == "warning: left out what is not related to podpresets: 1 Role\n") != relatedOnly {
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
