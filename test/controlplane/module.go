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

// stagingVersion is the version at which k8s.io/kubernetes requires its staging modules. Its go.mod replaces
// these modules with folders of its own repository, which do not exist in the module proxy.
const stagingVersion = "v0.0.0"

// goMod has the needed fields of the output of go mod edit -json.
type goMod struct {
	Go      string
	Godebug []struct{ Key, Value string }
	Require []struct{ Path, Version string }
}

// module returns the folder of a module in which the recipe's package can be built, and the -mod flag for the
// build. It returns the pinned module if that module has the recipe's version. Otherwise it creates a module
// in the cache. It also creates one if the source tree is not available: -trimpath hides the source tree, and
// a copy in the module cache lacks nested modules. For a created module the checksum database verifies the
// dependencies instead of this repository's go.sum.
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
	switch r.pinned {
	case Etcd:
		return etcdVersion
	case containerd:
		return containerdVersion
	default:
		return DefaultVersion
	}
}

// moduleText returns the go.mod of a module that requires only the recipe's module. The main module sets the
// language version and the debug settings for the whole build, so moduleText copies them from upstream.
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

// goJSON runs the go command and decodes its output. It decodes the output of a failed command too, because
// some go commands report the reason there.
func goJSON(ctx context.Context, dir string, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// Ignore a Go workspace in a parent folder of the cache.
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
