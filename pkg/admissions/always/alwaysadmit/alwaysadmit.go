// Package alwaysadmit admits everything, which is what happens without it too: it
// exists so that a list of plugins that names it is taken. See README.md.
package alwaysadmit

import "github.com/postern-dev/postern/pkg/admissions/admit"

// Plugin is AlwaysAdmit. It has no half, so nothing is registered for it.
//
// Upstream: plugin/pkg/admission/admit.
var Plugin = &admit.Plugin{
	Name: "AlwaysAdmit",
	New: func(_ admit.Deps, data []byte) (admit.Handler, error) {
		return admit.Handler{}, admit.NoConfig(data)
	},
}
