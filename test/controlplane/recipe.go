package controlplane

import (
	"fmt"
	"slices"
	"strings"
)

// recipe describes how to build a binary.
type recipe struct {
	path     string // the module that contains the package
	version  string // the version of that module
	pinned   string // the folder beside this file that pins the module's dependencies
	pkg      string
	duration string
	stamp    bool   // the linker sets the version that the binary reports, as Kubernetes' binaries have it
	variable string // or the linker sets this variable to the version
	test     bool   // the binary is the compiled test of the package
}

func (b *builder) recipe(name string) recipe {
	if name == etcd {
		path := "go.etcd.io/etcd/server/v3"
		return recipe{path: path, version: etcdVersion, pinned: "etcd", pkg: path, duration: "about 30 seconds"}
	}
	if slices.Contains(runtimeBinaries(), name) {
		path := "github.com/containerd/containerd/v2"
		r := recipe{
			path: path, version: containerdVersion, pinned: "containerd", pkg: path + "/cmd/" + name, duration: "about 10 seconds",
			variable: path + "/version.Version",
		}
		if name == containerd {
			r.duration = "about 3 minutes"
		}
		return r
	}
	r := recipe{
		path: "k8s.io/kubernetes", version: b.version, pinned: "kubernetes",
		pkg: "k8s.io/kubernetes/cmd/" + name, duration: "about 1 minute", stamp: true,
	}
	switch name {
	case kubeAPIServer:
		r.duration = "about 4 minutes"
	case kubelet:
		r.duration = "about 5 minutes"
	case E2ETest:
		r.pkg, r.duration, r.test = "k8s.io/kubernetes/test/e2e", "about 3 minutes", true
	case Ginkgo:
		r.pkg, r.duration, r.stamp = "github.com/onsi/ginkgo/v2/ginkgo", "about 10 seconds", false
	}
	return r
}

// linkerFlags omit the debug information. For a Kubernetes binary they also set the version: without them a
// server reports v0.0.0, and clients that check the version fail.
func (r recipe) linkerFlags() string {
	flags := []string{"-s", "-w"}
	if r.stamp {
		parts := strings.SplitN(strings.TrimPrefix(r.version, "v"), ".", 3)
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			flags = append(flags,
				fmt.Sprintf("-X %s.gitVersion=%s", pkg, r.version),
				fmt.Sprintf("-X %s.gitMajor=%s", pkg, parts[0]),
				fmt.Sprintf("-X %s.gitMinor=%s", pkg, parts[1]))
		}
	}
	if r.variable != "" {
		flags = append(flags, fmt.Sprintf("-X %s=%s", r.variable, r.version))
	}
	return strings.Join(flags, " ")
}
