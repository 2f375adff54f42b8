// Package denyescalatingexec denies exec and attach for pods that have more access to their node than other pods. See
// README.md.
package denyescalatingexec

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/internal/kinds/podconnect"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is DenyEscalatingExec.
//
// Upstream: plugin/pkg/admission/exec, until v1.20.
var Plugin = &admit.Plugin{
	Name:   "DenyEscalatingExec",
	Rules:  podconnect.Rules(),
	Access: access.Rules{access.To("", "pods", "get")},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		return admit.Handler{Validate: podconnect.Deny(d.Client, hostNamespace, podconnect.Privileged)}, nil
	},
}

// hostNamespace returns the reason for denying a pod that shares a namespace of its node, or "".
func hostNamespace(spec *corev1.PodSpec) string {
	switch {
	case spec.HostNetwork:
		return "a container using host network"
	case spec.HostPID:
		return "a container using host pid"
	case spec.HostIPC:
		return "a container using host ipc"
	}
	return ""
}
