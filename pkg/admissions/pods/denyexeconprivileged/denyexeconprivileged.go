// Package denyexeconprivileged denies exec and attach for pods with a privileged container. See README.md.
package denyexeconprivileged

import (
	"github.com/postern-dev/postern/pkg/admissions/access"
	"github.com/postern-dev/postern/pkg/admissions/admit"
	"github.com/postern-dev/postern/pkg/admissions/pods/connections"
)

// Plugin is DenyExecOnPrivileged.
//
// Upstream: plugin/pkg/admission/exec, until v1.20.
var Plugin = &admit.Plugin{
	Name:   "DenyExecOnPrivileged",
	Rules:  connections.Rules(),
	Access: access.Rules{access.To("", "pods", "get")},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		return admit.Handler{Validate: connections.Deny(d.Client, connections.Privileged)}, nil
	},
}
