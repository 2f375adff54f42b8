package persistentvolumelabel

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// unprovisioned is the handle of a volume that is yet to be made.
const unprovisioned = "placeholder-for-provisioning"

// identity is what a volume is called, here and by those who have it.
type identity struct {
	// name may be empty: the API server generates some later.
	name string
	// kind is the field of the volume's spec, such as csi.
	kind string
	// driver is that of a csi volume.
	driver string
	handle string
}

// kinds are the fields of a spec whose volumes have a handle.
func kinds() []string {
	return []string{"awsElasticBlockStore", "azureDisk", "cinder", "csi", "gcePersistentDisk", "vsphereVolume"}
}

// identityOf returns false for a volume that nobody could be asked about.
func identityOf(volume *corev1.PersistentVolume) (identity, bool) {
	id := identity{name: volume.Name}
	switch s := volume.Spec; {
	case s.AWSElasticBlockStore != nil:
		id.kind, id.handle = "awsElasticBlockStore", s.AWSElasticBlockStore.VolumeID
	case s.AzureDisk != nil:
		id.kind, id.handle = "azureDisk", cmp.Or(s.AzureDisk.DataDiskURI, s.AzureDisk.DiskName)
		if s.AzureDisk.DiskName == unprovisioned {
			return id, false
		}
	case s.Cinder != nil:
		id.kind, id.handle = "cinder", s.Cinder.VolumeID
	case s.CSI != nil:
		id.kind, id.driver, id.handle = "csi", s.CSI.Driver, s.CSI.VolumeHandle
	case s.GCEPersistentDisk != nil:
		id.kind, id.handle = "gcePersistentDisk", s.GCEPersistentDisk.PDName
	case s.VsphereVolume != nil:
		id.kind, id.handle = "vsphereVolume", s.VsphereVolume.VolumePath
	}
	return id, id.handle != "" && id.handle != unprovisioned
}

// identified is the CEL for volumes that may have a handle.
func identified() string {
	terms := make([]string, 0, len(kinds()))
	for _, kind := range kinds() {
		terms = append(terms, admit.CELValue("object.spec."+kind, "null")+" != null")
	}
	return strings.Join(terms, " || ")
}
