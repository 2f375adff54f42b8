// Package storage is the family of plugins that mutate and validate volumes, claims and their classes.
package storage

import (
	"github.com/postern-dev/postern/pkg/admissions/storage/defaultstorageclass"
	"github.com/postern-dev/postern/pkg/admissions/storage/persistentvolumeclaimresize"
	"github.com/postern-dev/postern/pkg/admissions/storage/persistentvolumelabel"
	"github.com/postern-dev/postern/pkg/admissions/storage/storageobjectinuseprotection"
	"github.com/postern-dev/postern/pkg/admit"
)

// Family lists the plugins in kube-apiserver's recommended order.
var Family = admit.Family{
	Name: "storage",
	Plugins: []*admit.Plugin{
		persistentvolumelabel.Plugin,
		defaultstorageclass.Plugin,
		storageobjectinuseprotection.Plugin,
		persistentvolumeclaimresize.Plugin,
	},
}
