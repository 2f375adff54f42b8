package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// stagingVersion is what k8s.io/kubernetes requires the modules at that are developed in its own
// repository. There it replaces them by folders, which do not exist in the module proxy.
const stagingVersion = "v0.0.0"

// goMod is what is needed of the output of go mod edit -json.
type goMod struct {
	Go      string
	Godebug []struct{ Key, Value string }
	Require []struct{ Path, Version string }
}

// module returns the folder of a module that the recipe's package builds in, and the go command's -mod
// for it: the pinned one if there is one of that version, else one that is made in the cache. The source
// tree may be out of reach (-trimpath hides it, a copy in the module cache lacks nested modules); then
// the checksum database vouches for the dependencies instead of our go.sum.
func (b *builder) module(ctx context.Context, r recipe) (dir, mod string, err error) {
	_, file, _, _ := runtime.Caller(0)
	pinned := filepath.Join(filepath.Dir(file), r.pinned)
	if _, err := os.Stat(filepath.Join(pinned, "go.mod")); err == nil && r.version == pinnedVersion(r) {
		return pinned, "readonly", nil
	}
	dir = filepath.Join(b.dir, "module-"+r.pinned)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	upstream, err := readGoMod(ctx, dir, r.path, r.version)
	if err != nil {
		return "", "", err
	}
	return dir, "mod", os.WriteFile(filepath.Join(dir, "go.mod"), []byte(moduleText(r, upstream)), 0o644)
}

func pinnedVersion(r recipe) string {
	if r.pinned == etcd {
		return etcdVersion
	}
	return DefaultVersion
}

// moduleText is the go.mod of a module that requires the recipe's module and nothing else. Its language
// version and its debug settings are what the main module decides for all, so they are upstream's.
func moduleText(r recipe, upstream goMod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "module github.com/postern-dev/postern/test/controlplane/%s\n\ngo %s\n", r.pinned, upstream.Go)
	for _, setting := range upstream.Godebug {
		fmt.Fprintf(&b, "\ngodebug %s=%s\n", setting.Key, setting.Value)
	}
	fmt.Fprintf(&b, "\nrequire %s %s\n", r.path, r.version)
	for _, required := range upstream.Require {
		if required.Version == stagingVersion {
			fmt.Fprintf(&b, "\nreplace %[1]s => %[1]s %s\n", required.Path, "v0"+strings.TrimPrefix(r.version, "v1"))
		}
	}
	return b.String()
}

// readGoMod downloads a module and reads its go.mod.
func readGoMod(ctx context.Context, dir, path, version string) (goMod, error) {
	var downloaded struct{ GoMod, Error string }
	err := goJSON(ctx, dir, &downloaded, "mod", "download", "-json", path+"@"+version)
	if downloaded.Error != "" {
		err = errors.New(downloaded.Error)
	}
	if err != nil {
		return goMod{}, fmt.Errorf("downloading %s %s: %w", path, version, err)
	}
	var upstream goMod
	if err := goJSON(ctx, dir, &upstream, "mod", "edit", "-json", downloaded.GoMod); err != nil {
		return goMod{}, fmt.Errorf("reading %s: %w", downloaded.GoMod, err)
	}
	return upstream, nil
}

// goJSON runs the go command and decodes what it prints, also when it fails: some of its commands then
// say why in what they print.
func goJSON(ctx context.Context, dir string, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// A workspace around the cache has no say in this.
	cmd.Env = append(os.Environ(), "GOWORK=off")
	output, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if jsonErr := json.Unmarshal(output, into); err == nil {
		err = jsonErr
	}
	return err
}
