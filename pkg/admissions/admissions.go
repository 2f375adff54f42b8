// Package admissions holds the list of built-in families. For any list of families it reads kube-apiserver's
// flags and configuration file, and determines the enabled plugins and their configuration.
package admissions

import (
	"github.com/postern-dev/postern/pkg/admissions/always"
	"github.com/postern-dev/postern/pkg/admissions/certificates"
	"github.com/postern-dev/postern/pkg/admissions/deletion"
	"github.com/postern-dev/postern/pkg/admissions/events"
	"github.com/postern-dev/postern/pkg/admissions/fleetquota"
	"github.com/postern-dev/postern/pkg/admissions/namespaces"
	"github.com/postern-dev/postern/pkg/admissions/network"
	"github.com/postern-dev/postern/pkg/admissions/nodes"
	"github.com/postern-dev/postern/pkg/admissions/ownership"
	"github.com/postern-dev/postern/pkg/admissions/pods"
	"github.com/postern-dev/postern/pkg/admissions/quota"
	"github.com/postern-dev/postern/pkg/admissions/storage"
)

// Families returns the built-in families, in the order of the table in the README. The API server calls
// webhooks in the order of their names. A custom program appends its own families to the list, or passes
// another list.
func Families() List {
	return List{
		always.Family,
		namespaces.Family,
		pods.Family,
		nodes.Family,
		storage.Family,
		certificates.Family,
		network.Family,
		ownership.Family,
		events.Family,
		quota.Family,
		deletion.Family,
		fleetquota.Family,
	}
}
