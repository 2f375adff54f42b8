package strategies

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

func (p *Policy) checkVolumes(spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	writes := sync.OnceValue(func() map[string]field.ErrorList { return writesOf(spec) })
	for i := range spec.Volumes {
		if len(errs) >= maxViolations {
			break
		}
		errs = append(errs, p.checkVolume(field.NewPath("spec", "volumes").Index(i), &spec.Volumes[i], writes)...)
	}
	return errs
}

// writesOf returns the violations by mounts that are not read-only, by the name of their volume.
func writesOf(spec *corev1.PodSpec) map[string]field.ErrorList {
	out := map[string]field.ErrorList{}
	for c := range podspec.EachContainer(spec) {
		for i, m := range c.VolumeMounts {
			if !m.ReadOnly && len(out[m.Name]) < maxViolations {
				out[m.Name] = append(out[m.Name], field.Invalid(c.Path().Child("volumeMounts").Index(i).Child("readOnly"), false, "must be read-only"))
			}
		}
	}
	return out
}

func (p *Policy) checkVolume(path *field.Path, v *corev1.Volume, writes func() map[string]field.ErrorList) field.ErrorList {
	kind := typeOf(v)
	if !p.allowsType(kind, v) {
		detail := string(kind) + " volumes are not allowed to be used"
		if kind == "" {
			detail = fmt.Sprintf("unknown volume type for volume: %q", v.Name)
		}
		return field.ErrorList{field.Invalid(path, string(kind), detail)}
	}
	switch kind {
	case policyv1.HostPath:
		return p.checkHostPath(path, v, writes)
	case policyv1.FlexVolume:
		driver, allowed := v.FlexVolume.Driver, p.spec.AllowedFlexVolumes
		if len(allowed) > 0 && !slices.Contains(allowed, policyv1.AllowedFlexVolume{Driver: driver}) {
			return field.ErrorList{field.Invalid(path.Child("driver"), driver, "Flexvolume driver is not allowed to be used")}
		}
	case policyv1.CSI:
		driver, allowed := v.CSI.Driver, p.spec.AllowedCSIDrivers
		if len(allowed) > 0 && !slices.Contains(allowed, policyv1.AllowedCSIDriver{Name: driver}) {
			return field.ErrorList{field.Invalid(path.Child("csi", "driver"), driver, "Inline CSI driver is not allowed to be used")}
		}
	default:
		// Of the other types, only the type is restricted.
	}
	return nil
}

func (p *Policy) allowsType(kind policyv1.FSType, v *corev1.Volume) bool {
	allows := func(kind policyv1.FSType) bool { return slices.Contains(p.spec.Volumes, kind) }
	switch {
	case allows(policyv1.All), kind != "" && allows(kind):
		return true
	case kind == policyv1.Projected && allows(policyv1.Secret):
		// Service account tokens were Secrets before they were projected.
		return isServiceAccountToken(v.Projected)
	}
	return false
}

// isServiceAccountToken reports whether a volume projects nothing but what kube-apiserver's plugin ServiceAccount
// projects: the token, the certificates of the API server and the name of the namespace.
func isServiceAccountToken(v *corev1.ProjectedVolumeSource) bool {
	for _, s := range v.Sources {
		switch t, m, d := s.ServiceAccountToken, s.ConfigMap, s.DownwardAPI; {
		case t == nil && m == nil && d == nil:
			return false
		case t != nil && (t.Path != "token" || t.Audience != ""):
			return false
		case m != nil && m.Name != "kube-root-ca.crt":
			return false
		case d != nil && slices.ContainsFunc(d.Items, func(f corev1.DownwardAPIVolumeFile) bool {
			return f.Path != "namespace" || f.FieldRef == nil || f.FieldRef.APIVersion != "v1" || f.FieldRef.FieldPath != "metadata.namespace"
		}):
			return false
		}
	}
	return true
}

func (p *Policy) checkHostPath(path *field.Path, v *corev1.Volume, writes func() map[string]field.ErrorList) field.ErrorList {
	allowed, readOnly := p.allowsHostPath(v.HostPath.Path)
	if !allowed {
		return field.ErrorList{field.Invalid(path.Child("hostPath", "pathPrefix"), v.HostPath.Path, "is not allowed to be used")}
	}
	if !readOnly {
		return nil
	}
	return writes()[v.Name]
}

// allowsHostPath reports whether a path is allowed, and whether only for reading. A prefix that allows to write wins.
func (p *Policy) allowsHostPath(path string) (allowed, readOnly bool) {
	if len(p.spec.AllowedHostPaths) == 0 {
		return true, false
	}
	for _, a := range p.spec.AllowedHostPaths {
		if !hasPathPrefix(path, a.PathPrefix) {
			continue
		}
		if !a.ReadOnly {
			return true, false
		}
		allowed = true
	}
	return allowed, allowed
}

// hasPathPrefix reports whether a path is the prefix or below it. One trailing slash is ignored in both.
func hasPathPrefix(path, prefix string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(path, "/"), strings.TrimSuffix(prefix, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// typeOf returns "" for a type of volume that is newer than Kubernetes 1.24.
func typeOf(v *corev1.Volume) policyv1.FSType {
	for _, t := range []struct {
		is   bool
		kind policyv1.FSType
	}{
		{v.HostPath != nil, policyv1.HostPath},
		{v.EmptyDir != nil, policyv1.EmptyDir},
		{v.GCEPersistentDisk != nil, policyv1.GCEPersistentDisk},
		{v.AWSElasticBlockStore != nil, policyv1.AWSElasticBlockStore},
		{v.GitRepo != nil, policyv1.GitRepo},
		{v.Secret != nil, policyv1.Secret},
		{v.NFS != nil, policyv1.NFS},
		{v.ISCSI != nil, policyv1.ISCSI},
		{v.Glusterfs != nil, policyv1.Glusterfs},
		{v.PersistentVolumeClaim != nil, policyv1.PersistentVolumeClaim},
		{v.RBD != nil, policyv1.RBD},
		{v.FlexVolume != nil, policyv1.FlexVolume},
		{v.Cinder != nil, policyv1.Cinder},
		{v.CephFS != nil, policyv1.CephFS},
		{v.Flocker != nil, policyv1.Flocker},
		{v.DownwardAPI != nil, policyv1.DownwardAPI},
		{v.FC != nil, policyv1.FC},
		{v.AzureFile != nil, policyv1.AzureFile},
		{v.ConfigMap != nil, policyv1.ConfigMap},
		{v.VsphereVolume != nil, policyv1.VsphereVolume},
		{v.Quobyte != nil, policyv1.Quobyte},
		{v.AzureDisk != nil, policyv1.AzureDisk},
		{v.PhotonPersistentDisk != nil, policyv1.PhotonPersistentDisk},
		{v.StorageOS != nil, policyv1.StorageOS},
		{v.Projected != nil, policyv1.Projected},
		{v.PortworxVolume != nil, policyv1.PortworxVolume},
		{v.ScaleIO != nil, policyv1.ScaleIO},
		{v.CSI != nil, policyv1.CSI},
		{v.Ephemeral != nil, policyv1.Ephemeral},
	} {
		if t.is {
			return t.kind
		}
	}
	return ""
}
