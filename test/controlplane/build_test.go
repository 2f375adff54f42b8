package controlplane_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/test/controlplane"
)

// writingGo replaces the go command. It counts its calls and writes the output files.
const writingGo = `#!/bin/sh
echo "$PWD $*" >>"$GO_CALLS"
while [ "$1" != -o ]; do shift; done
output=$2
shift 2
sleep 0.3
case $output in
*/) for package; do echo binary >"$output${package##*/}"; done ;;
*) echo binary >"$output" ;;
esac
`

const failingGo = `#!/bin/sh
echo "no such package"
exit 1
`

func TestTwoBuildersAtOnceBuildOnce(t *testing.T) {
	calls := useGo(t, writingGo)
	var builders sync.WaitGroup
	for range 2 {
		builders.Go(func() {
			var progress bytes.Buffer
			if _, err := controlplane.Build(t.Context(), "", &progress, "etcd"); err != nil {
				t.Error(err)
			}
			if progress.Len() == 0 {
				t.Error("Nothing was said about the build.")
			}
		})
	}
	builders.Wait()
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(text), "\n"); got != 1 {
		t.Errorf("The go command ran %d times, want once: %s", got, text)
	}
	if !strings.Contains(string(text), "/test/controlplane/etcd build -mod=readonly ") {
		t.Errorf("The go command was not run in the pinned module: %s", text)
	}
}

func TestRemainsOfAKilledBuilderAreRemoved(t *testing.T) {
	useGo(t, writingGo)
	dir, err := controlplane.BinaryDir("")
	if err != nil {
		t.Fatal(err)
	}
	remains := filepath.Join(dir, ".build-123")
	if err := os.MkdirAll(remains, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.Build(t.Context(), "", t.Output(), "etcd"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(remains); !os.IsNotExist(err) {
		t.Errorf("The folder of a killed builder: got error %v, want that it is gone", err)
	}
}

func TestBuiltBinariesAreNotBuiltAgain(t *testing.T) {
	calls := useGo(t, writingGo)
	for range 2 {
		dir, err := controlplane.Build(t.Context(), "", t.Output(), controlplane.AllBinaries()...)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "kubectl")); string(text) != "binary\n" {
			t.Errorf("kubectl is %q, %v", text, err)
		}
	}
	text, err := os.ReadFile(calls)
	if got := strings.Count(string(text), "\n"); got != 2 {
		t.Errorf("The go command ran %d times, want once per module: %s, %v", got, text, err)
	}
	if want := "-X k8s.io/component-base/version.gitVersion=" + controlplane.DefaultVersion; !strings.Contains(string(text), want) {
		t.Errorf("%s is missing in %s", want, text)
	}
}

func TestEndToEndTestsAreBuiltAsATest(t *testing.T) {
	calls := useGo(t, writingGo)
	if _, err := controlplane.Build(t.Context(), "", t.Output(), controlplane.E2ETest, controlplane.Ginkgo); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "/kubernetes test -c ") || !strings.HasSuffix(lines[0], " k8s.io/kubernetes/test/e2e") ||
		!strings.Contains(lines[1], "/kubernetes build ") || !strings.HasSuffix(lines[1], " github.com/onsi/ginkgo/v2/ginkgo") {
		t.Errorf("The go command ran as %q", lines)
	}
}

func TestFailedBuildShowsTheOutputAndLeavesNothing(t *testing.T) {
	useGo(t, failingGo)
	_, err := controlplane.Build(t.Context(), "", t.Output(), "etcd")
	if err == nil || !strings.Contains(err.Error(), "no such package") {
		t.Errorf("The error is %v, want the words of the go command", err)
	}
	dir, err := controlplane.BinaryDir("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd")); !os.IsNotExist(err) {
		t.Errorf("There is a binary: %v", err)
	}
}

func TestAssetsAreUsedAsTheyAre(t *testing.T) {
	useGo(t, failingGo)
	assets := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.WriteFile(filepath.Join(assets, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := controlplane.Build(t.Context(), "", t.Output(), "etcd", "kube-apiserver", "kubectl")
	if err != nil || dir != assets {
		t.Errorf("Got %q, %v, want the assets", dir, err)
	}
	_, err = controlplane.Build(t.Context(), "", t.Output(), controlplane.AllBinaries()...)
	if err == nil || !strings.Contains(err.Error(), "lacks kubectl, kube-controller-manager") {
		t.Errorf("The error is %v, want what is missing", err)
	}
}

func TestVersionIsChecked(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	for _, version := range []string{"1.37.1", "v1.37", "v1.37.1/../..", "latest"} {
		if dir, err := controlplane.BinaryDir(version); err == nil {
			t.Errorf("The folder of version %q is %s, want an error", version, dir)
		}
	}
}

// useGo installs the script as the go command, empties the cache, and returns the file to which the script
// may write its arguments.
func useGo(t *testing.T, script string) string {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	calls := filepath.Join(bin, "calls")
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("GO_CALLS", calls)
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("POSTERN_CACHE_DIR", t.TempDir())
	return calls
}
