package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// DefaultVersion is the version of Kubernetes whose dependencies the module in the folder kubernetes pins.
const DefaultVersion = "v1.37.1"

// etcdVersion is the etcd version that the module in the folder etcd pins. Every supported version of
// Kubernetes works with this etcd.
const etcdVersion = "v3.7.0"

// containerdVersion is the version of containerd that the module in the folder containerd pins.
const containerdVersion = "v2.4.2"

// Etcd is the file name of etcd.
const Etcd = "etcd"

// The file names of the other binaries.
const (
	kubeAPIServer         = "kube-apiserver"
	kubeControllerManager = "kube-controller-manager"
	kubectl               = "kubectl"
	kubelet               = "kubelet"
	kubeProxy             = "kube-proxy"
	kubeScheduler         = "kube-scheduler"
	containerd            = "containerd"
	containerdShim        = "containerd-shim-runc-v2"
	ctr                   = "ctr"
)

// The names of the binaries that run Kubernetes' own end-to-end tests. No control plane needs them.
const (
	// E2ETest is the compiled package k8s.io/kubernetes/test/e2e.
	E2ETest = "e2e.test"
	// Ginkgo runs E2ETest in several processes at once. It has the version of Ginkgo that E2ETest contains.
	Ginkgo = "ginkgo"
)

// AllBinaries lists the binaries of a control plane.
func AllBinaries() []string {
	return []string{Etcd, kubeAPIServer, kubectl, kubeControllerManager}
}

// NodeBinaries lists the binaries of Kubernetes that a cluster with a node needs besides those of AllBinaries.
func NodeBinaries() []string {
	return []string{kubelet, kubeProxy, kubeScheduler}
}

// BinaryDir returns the folder for the binaries of a version. The binaries may not be built yet. It is the
// folder that KUBEBUILDER_ASSETS names, or else a folder in the cache.
func BinaryDir(version string) (string, error) {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return filepath.Abs(assets)
	}
	if version == "" {
		version = DefaultVersion
	}
	// The version becomes a path and an argument of the go command.
	if !regexp.MustCompile(`^v1\.\d+\.\d+(-[a-z]+\.\d+)?$`).MatchString(version) {
		return "", fmt.Errorf("%q is not a version of Kubernetes such as %s", version, DefaultVersion)
	}
	return cacheDir("controlplane", version+"-etcd-"+etcdVersion)
}

func cacheDir(elements ...string) (string, error) {
	cache := os.Getenv("POSTERN_CACHE_DIR")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "postern")
	}
	return filepath.Abs(filepath.Join(append([]string{cache}, elements...)...))
}

// BuildRuntime builds the missing binaries of containerd, and returns the folder that holds all of them. It writes to
// progress as Build does.
func BuildRuntime(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := cacheDir("containerd", containerdVersion)
	if err != nil {
		return "", err
	}
	if missing, err := missingFrom(dir, runtimeBinaries()); err != nil || len(missing) == 0 {
		return dir, err
	}
	b := &builder{dir: dir, version: containerdVersion, progress: progress}
	return dir, b.build(ctx, runtimeBinaries())
}

func runtimeBinaries() []string { return []string{containerd, containerdShim, ctr} }

// Build builds the missing ones of the named binaries, and returns the folder that holds all of them. It
// writes to progress which binary it builds and how long the build takes. If KUBEBUILDER_ASSETS names a
// folder, Build builds nothing and returns an error for a missing binary. Only kubectl may be missing,
// because not every test calls it.
func Build(ctx context.Context, version string, progress io.Writer, names ...string) (string, error) {
	dir, err := BinaryDir(version)
	if err != nil {
		return "", err
	}
	missing, err := missingFrom(dir, names)
	if err != nil || len(missing) == 0 {
		return dir, err
	}
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		if len(missing) == 1 && missing[0] == kubectl {
			return dir, nil
		}
		return "", fmt.Errorf("%s, the folder in KUBEBUILDER_ASSETS, lacks %s: add it, or unset the variable to have it built",
			dir, strings.Join(missing, ", "))
	}
	if version == "" {
		version = DefaultVersion
	}
	b := &builder{dir: dir, version: version, progress: progress}
	return dir, b.build(ctx, names)
}

func missingFrom(dir string, names []string) ([]string, error) {
	var missing []string
	for _, name := range names {
		_, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
		} else if err != nil {
			return nil, err
		}
	}
	return missing, nil
}
