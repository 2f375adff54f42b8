// Package denyexeconprivileged denies exec and attach for pods with a privileged container. See README.md.
package denyexeconprivileged

import (
	"github.com/postern-dev/postern/internal/kinds/podconnect"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is DenyExecOnPrivileged.
//
// Upstream: plugin/pkg/admission/exec, until v1.20.
var Plugin = &admit.Plugin{
	Name:   "DenyExecOnPrivileged",
	Rules:  podconnect.Rules(),
	Access: access.Rules{access.To("", "pods", "get")},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		return admit.Handler{Validate: podconnect.Deny(d.Client, podconnect.Privileged)}, nil
	},
}
