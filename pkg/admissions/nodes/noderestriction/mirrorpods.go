package noderestriction

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
)

// mirrorPod allows a node to create mirror pods of its static pods. A mirror pod must be bound to the node,
// owned by the Node and must not refer to other API objects, because the node authorizer grants a node access
// to every object that its pods refer to.
func (n *nodeRestriction) mirrorPod(ctx context.Context, r *admit.Request, node string) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok {
		return unexpected(r, r.Object)
	}
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; !ok {
		return deny(r, "pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	}
	if pod.Spec.NodeName != node {
		return deny(r, "node %q can only create pods with spec.nodeName set to itself", node)
	}
	if err := n.checkOwner(ctx, r, pod, node); err != nil {
		return err
	}
	what, err := reference(&pod.Spec)
	switch {
	case err != nil:
		return deny(r, "error checking mirror pod for API references: %w", err)
	case what != "":
		return deny(r, "node %q can not create pods that reference %s", node, what)
	}
	return nil
}

// checkOwner requires the Node to be the only owner of the pod: deleting an owner deletes the pod, and the
// pod can block the deletion of an owner.
func (n *nodeRestriction) checkOwner(ctx context.Context, r *admit.Request, pod *corev1.Pod, node string) error {
	if len(pod.OwnerReferences) > 1 {
		return deny(r, "node %q can only create pods with a single owner reference set to itself", node)
	}
	if len(pod.OwnerReferences) == 0 {
		return deny(r, "node %q can only create pods with an owner reference set to itself", node)
	}
	owner := pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return deny(r, "node %q can only create pods with an owner reference set to itself", node)
	case !ptr.Deref(owner.Controller, false):
		return deny(r, "node %q can only create pods with a controller owner reference set to itself", node)
	case ptr.Deref(owner.BlockOwnerDeletion, false):
		return deny(r, "node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	current, err := n.findNode(ctx, node)
	if err != nil {
		return err
	}
	if owner.UID != current.UID {
		return deny(r, "node %s UID mismatch: expected %s got %s", node, owner.UID, current.UID)
	}
	return nil
}

func (n *nodeRestriction) findNode(ctx context.Context, name string) (*corev1.Node, error) {
	return find(ctx, n.client.CoreV1().Nodes(), corev1.Resource("node"), name)
}

// reference returns the kind of API object that a pod refers to, or "" if the pod refers to none. A volume of
// an unknown type is an error.
//
// Upstream: pkg/api/pod HasAPIObjectReference.
func reference(spec *corev1.PodSpec) (string, error) {
	switch {
	case spec.ServiceAccountName != "":
		return "serviceaccounts", nil
	case len(podspec.SecretNames(spec)) > 0:
		return "secrets", nil
	case hasConfigMap(spec):
		return "configmaps", nil
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range spec.Volumes {
		if what, err := volumeReference(&spec.Volumes[i]); what != "" || err != nil {
			return what, err
		}
	}
	return "", nil
}

// hasConfigMap reports whether a pod refers to a ConfigMap.
func hasConfigMap(spec *corev1.PodSpec) bool {
	for c := range podspec.EachContainer(spec) {
		from := func(s corev1.EnvFromSource) bool { return s.ConfigMapRef != nil && s.ConfigMapRef.Name != "" }
		env := func(e corev1.EnvVar) bool {
			return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name != ""
		}
		if slices.ContainsFunc(c.EnvFrom, from) || slices.ContainsFunc(c.Env, env) {
			return true
		}
	}
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		if v.Projected == nil {
			return v.ConfigMap != nil && v.ConfigMap.Name != ""
		}
		return slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ConfigMap != nil && s.ConfigMap.Name != "" })
	})
}

func volumeReference(v *corev1.Volume) (string, error) {
	switch {
	case isSelfContained(v):
		return "", nil
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)", nil
	case v.Secret != nil:
		return "secrets (via secret volumes)", nil
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)", nil
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)", nil
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims", nil
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)", nil
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)", nil
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if what, err := sourceReference(v.Name, &v.Projected.Sources[i]); what != "" || err != nil {
				return what, err
			}
		}
		return "", nil
	}
	return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
}

// isSelfContained reports whether a volume is of a type that refers to no API object. Secrets are checked
// before, so types that may refer only to a Secret count as self-contained.
func isSelfContained(v *corev1.Volume) bool {
	return v.AWSElasticBlockStore != nil || v.AzureDisk != nil || v.CephFS != nil || v.Cinder != nil ||
		v.DownwardAPI != nil || v.EmptyDir != nil || v.FC != nil || v.FlexVolume != nil || v.Flocker != nil ||
		v.GCEPersistentDisk != nil || v.GitRepo != nil || v.HostPath != nil || v.Image != nil || v.ISCSI != nil ||
		v.NFS != nil || v.PhotonPersistentDisk != nil || v.PortworxVolume != nil || v.Quobyte != nil || v.RBD != nil ||
		v.ScaleIO != nil || v.StorageOS != nil || v.VsphereVolume != nil
}

func sourceReference(volume string, s *corev1.VolumeProjection) (string, error) {
	switch {
	case s.ConfigMap != nil:
		return "configmaps (via projected volumes)", nil
	case s.Secret != nil:
		return "secrets (via projected volumes)", nil
	case s.ServiceAccountToken != nil:
		return "serviceaccounts (via projected volumes)", nil
	case s.ClusterTrustBundle != nil:
		return "clustertrustbundles", nil
	case s.PodCertificate != nil:
		return "podcertificates", nil
	case s.DownwardAPI != nil:
		return "", nil
	}
	return "", fmt.Errorf("unknown source for projected volume %q", volume)
}
