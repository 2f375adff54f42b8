package controlplane

import (
	"fmt"
	"strings"
)

// recipe says how a binary is built.
type recipe struct {
	path     string // the module that has it
	version  string // of that module
	pinned   string // the folder beside this file that pins the module's dependencies
	pkg      string
	duration string
	stamp    bool // it reports the version that the linker tells it
}

func (b *builder) recipe(name string) recipe {
	if name == etcd {
		path := "go.etcd.io/etcd/server/v3"
		return recipe{path: path, version: etcdVersion, pinned: "etcd", pkg: path, duration: "about 30 seconds"}
	}
	duration := "about 1 minute"
	if name == kubeAPIServer {
		duration = "about 4 minutes"
	}
	return recipe{
		path: "k8s.io/kubernetes", version: b.version, pinned: "kubernetes",
		pkg: "k8s.io/kubernetes/cmd/" + name, duration: duration, stamp: true,
	}
}

// linkerFlags leave out what only a debugger reads. Kubernetes takes its version from the linker; without
// it, a server calls itself v0.0.0, and clients that look at the version go astray.
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
	return strings.Join(flags, " ")
}
