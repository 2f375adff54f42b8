package persistentvolumelabel

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// unprovisioned is the handle of a volume that does not exist yet.
const unprovisioned = "placeholder-for-provisioning"

// identity identifies a volume, in Kubernetes and in its storage system.
type identity struct {
	// name may be empty, because the API server generates some names later.
	name string
	// kind is the field of the volume's spec, such as csi.
	kind string
	// driver is the CSI driver of a csi volume.
	driver string
	handle string
}

// size is how many bytes of an identity its creator chose.
func (id identity) size() int { return len(id.name) + len(id.driver) + len(id.handle) }

// kinds are the volume fields of a spec that contain a handle.
func kinds() []string {
	return []string{"awsElasticBlockStore", "azureDisk", "cinder", "csi", "gcePersistentDisk", "vsphereVolume"}
}

// identityOf returns false for a volume without a handle.
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
