// Package alwaysadmit admits every request, which is also the default without it. It
// exists so that a list of plugins may name it. See README.md.
package alwaysadmit

import "github.com/postern-dev/postern/pkg/admit"

// Plugin is AlwaysAdmit. It neither mutates nor validates, so no webhook is
// registered for it.
//
// Upstream: plugin/pkg/admission/admit.
var Plugin = &admit.Plugin{
	Name: "AlwaysAdmit",
	New: func(admit.Deps, []byte) (admit.Handler, error) {
		return admit.Handler{}, nil
	},
}
