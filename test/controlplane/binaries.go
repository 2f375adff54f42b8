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

// DefaultVersion of Kubernetes is the one whose dependencies the module in the folder kubernetes pins.
const DefaultVersion = "v1.37.1"

// etcdVersion is what the module in the folder etcd pins. Every version of Kubernetes here works with it.
const etcdVersion = "v3.7.0"

// The binaries; a folder of binaries holds each under this name.
const (
	etcd                  = "etcd"
	kubeAPIServer         = "kube-apiserver"
	kubeControllerManager = "kube-controller-manager"
	kubectl               = "kubectl"
)

// AllBinaries lists what Build can build.
func AllBinaries() []string {
	return []string{etcd, kubeAPIServer, kubectl, kubeControllerManager}
}

// BinaryDir is the folder where the binaries of that version are, or will be once they are built: the
// one that KUBEBUILDER_ASSETS names, else one in the cache.
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
	cache := os.Getenv("POSTERN_CACHE_DIR")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "postern")
	}
	return filepath.Abs(filepath.Join(cache, "controlplane", version+"-etcd-"+etcdVersion))
}

// Build makes sure that the named binaries exist, and returns the folder that holds them. It tells
// progress what it builds, and how long that takes. Where KUBEBUILDER_ASSETS names a folder, nothing is
// built, and what is missing there is an error; only kubectl may be, because not every test calls it.
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
