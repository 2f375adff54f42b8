package controlplane

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestModuleText(t *testing.T) {
	upstream := goMod{
		Go:      "1.24.0",
		Godebug: []struct{ Key, Value string }{{"default", "go1.24"}},
		Require: []struct{ Path, Version string }{
			{"k8s.io/api", "v0.0.0"},
			{"k8s.io/klog/v2", "v2.130.1"},
			{"k8s.io/utils", "v0.0.0-20260626114624-be93311217bd"},
			{"k8s.io/apiserver", "v0.0.0"},
		},
	}
	const want = `module github.com/postern-dev/postern/test/controlplane/kubernetes

go 1.24.0

godebug default=go1.24

require k8s.io/kubernetes v1.33.13

replace k8s.io/api => k8s.io/api v0.33.13

replace k8s.io/apiserver => k8s.io/apiserver v0.33.13
`
	b := builder{version: "v1.33.13"}
	if got := moduleText(b.recipe(kubeAPIServer), upstream); got != want {
		t.Errorf("Got:\n%s\nwant:\n%s", got, want)
	}
}

// TestPinnedModulesAreOfTheVersionsNamedHere fails if a version is raised in only one of its two places.
func TestPinnedModulesAreOfTheVersionsNamedHere(t *testing.T) {
	b := builder{version: DefaultVersion}
	for _, r := range []recipe{b.recipe(Etcd), b.recipe(kubeAPIServer), b.recipe(containerd)} {
		if got := pinned(t, r).required(r.path); got != r.version {
			t.Errorf("%s/go.mod requires %s %q, want %s", r.pinned, r.path, got, r.version)
		}
	}
}

func TestPinnedModuleReplacesWhatUpstreamDevelopsInTree(t *testing.T) {
	b := builder{version: DefaultVersion}
	r := b.recipe(kubeAPIServer)
	upstream, err := readGoMod(t.Context(), t.TempDir(), r.path, r.version)
	if err != nil {
		t.Fatal(err)
	}
	generated := filepath.Join(t.TempDir(), "go.mod")
	writeFile(t, generated, moduleText(r, upstream))
	var want modReplaces
	if err := goJSON(t.Context(), t.TempDir(), &want, "mod", "edit", "-json", generated); err != nil {
		t.Fatal(err)
	}
	got := pinned(t, r)
	if got.Go != want.Go {
		t.Errorf("The pinned module is of Go %s, want %s", got.Go, want.Go)
	}
	if !slices.Equal(got.Replace, want.Replace) {
		t.Errorf("The pinned module replaces %v, want %v", got.Replace, want.Replace)
	}
}

type modReplaces struct {
	goMod
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

func (m modReplaces) required(path string) string {
	for _, r := range m.Require {
		if r.Path == path {
			return r.Version
		}
	}
	return ""
}

func pinned(t *testing.T, r recipe) modReplaces {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	var m modReplaces
	if err := goJSON(t.Context(), ".", &m, "mod", "edit", "-json", filepath.Join(r.pinned, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return m
}
