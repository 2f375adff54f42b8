package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// recipe describes how to build a binary.
type recipe struct {
	path     string // the module that contains the package
	version  string // the version of that module
	pinned   string // the folder beside this file that pins the module's dependencies
	pkg      string
	duration time.Duration
	stamp    bool   // the linker sets the version that the binary reports, as Kubernetes' binaries have it
	variable string // or the linker sets this variable to the version
	test     bool   // the binary is the compiled test of the package
}

func (b *builder) recipe(name string) recipe {
	if name == Etcd {
		path := "go.etcd.io/etcd/server/v3"
		return recipe{path: path, version: etcdVersion, pinned: "etcd", pkg: path, duration: 30 * time.Second}
	}
	if slices.Contains(runtimeBinaries(), name) {
		path := "github.com/containerd/containerd/v2"
		r := recipe{
			path: path, version: containerdVersion, pinned: "containerd", pkg: path + "/cmd/" + name, duration: 10 * time.Second,
			variable: path + "/version.Version",
		}
		if name == containerd {
			r.duration = 3 * time.Minute
		}
		return r
	}
	r := recipe{
		path: "k8s.io/kubernetes", version: b.version, pinned: "kubernetes",
		pkg: "k8s.io/kubernetes/cmd/" + name, duration: time.Minute, stamp: true,
	}
	switch name {
	case kubeAPIServer:
		r.duration = 4 * time.Minute
	case kubelet:
		r.duration = 5 * time.Minute
	case E2ETest:
		r.pkg, r.duration, r.test = "k8s.io/kubernetes/test/e2e", 3*time.Minute, true
	case Ginkgo:
		r.pkg, r.duration, r.stamp = "github.com/onsi/ginkgo/v2/ginkgo", 10*time.Second, false
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

// batch is what one go command builds: the binaries of one module with the same flags. The go command compiles the packages
// of one binary while it links another one.
type batch struct {
	recipe
	names    []string
	packages []string
	total    time.Duration
}

// batches groups the binaries, in the order of the names.
func (b *builder) batches(names []string) []batch {
	var all []batch
	for _, name := range names {
		r := b.recipe(name)
		i := slices.IndexFunc(all, func(x batch) bool {
			return x.pinned == r.pinned && x.linkerFlags() == r.linkerFlags() && !x.test && !r.test
		})
		if i < 0 {
			i = len(all)
			all = append(all, batch{recipe: r})
		}
		all[i].names = append(all[i].names, name)
		all[i].packages = append(all[i].packages, r.pkg)
		all[i].total += r.duration
	}
	return all
}

func (b batch) title() string { return strings.Join(b.names, ", ") }

// takes returns the usual duration of the build in words.
func (b batch) takes() string {
	if b.total < time.Minute {
		return fmt.Sprintf("about %.0f seconds", b.total.Seconds())
	}
	return fmt.Sprintf("about %.0f minutes", b.total.Minutes())
}
