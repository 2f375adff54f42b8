// Package annotations denies requests because of annotations that a plugin cannot read.
package annotations

import (
	"fmt"

	"github.com/postern-dev/postern/pkg/admit"
)

// Unreadable denies a request because the plugin cannot read an annotation of the request's namespace. err says why, in
// upstream's words. The user of the request may know neither the plugin nor the annotation, so the message names both.
func Unreadable(r *admit.Request, plugin, annotation string, err error) error {
	return admit.ForbiddenAs(r, fmt.Errorf("%w: %s cannot read annotation %q of namespace %q", err, plugin, annotation, r.Namespace))
}
