package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// upgrade converts a role or a binding of v1alpha1 or v1beta1 to v1, and reports whether it was one. The versions have the
// same fields, except the subjects of v1alpha1.
func upgrade(u *unstructured.Unstructured) (bool, error) {
	gvk := u.GroupVersionKind()
	if gvk.Group != rbacv1.GroupName || gvk.Version != "v1alpha1" && gvk.Version != "v1beta1" {
		return false, nil
	}
	into, ok := map[string]any{
		"Role":               &rbacv1.Role{},
		"RoleBinding":        &rbacv1.RoleBinding{},
		"ClusterRole":        &rbacv1.ClusterRole{},
		"ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
	}[gvk.Kind]
	if !ok {
		return false, errors.New("unknown kind")
	}
	u.SetAPIVersion(rbacv1.SchemeGroupVersion.String())
	if subjects, ok := u.Object["subjects"].([]any); ok && gvk.Version == "v1alpha1" {
		for i, s := range subjects {
			if err := upgradeSubject(s, field.NewPath("subjects").Index(i)); err != nil {
				return false, err
			}
		}
	}
	return true, decodeStrictly(u, into)
}

// upgradeSubject converts a subject of v1alpha1. Its apiVersion has no effect, and a User "*" is everybody who is
// authenticated.
//
// Upstream: Convert_v1alpha1_Subject_To_rbac_Subject.
func upgradeSubject(s any, path *field.Path) error {
	subject, ok := s.(map[string]any)
	if !ok {
		return field.TypeInvalid(path, s, "must be an object")
	}
	delete(subject, "apiVersion")
	switch kind, _ := subject["kind"].(string); kind {
	case rbacv1.ServiceAccountKind:
		delete(subject, "apiGroup")
	case rbacv1.UserKind, rbacv1.GroupKind:
		subject["apiGroup"] = rbacv1.GroupName
		if kind == rbacv1.UserKind && subject["name"] == "*" {
			subject["kind"], subject["name"] = rbacv1.GroupKind, "system:authenticated"
		}
	default:
		return field.NotSupported(path.Child("kind"), kind, []string{rbacv1.GroupKind, rbacv1.ServiceAccountKind, rbacv1.UserKind})
	}
	return nil
}

// decodeStrictly decodes an object into a value: an unknown field is an error.
func decodeStrictly(u *unstructured.Unstructured, into any) error {
	data, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	return errors.Join(append(strict, err)...)
}

// removal is a version of kinds that no Kubernetes of 1.28 or later serves.
type removal struct {
	release, version, kinds string
	// command of postern migrate converts the kinds, if there is one.
	command string
}

// removals has no roles and bindings, because upgrade converts them.
//
// Upstream: https://kubernetes.io/docs/reference/using-api/deprecation-guide/, the prerelease-lifecycle markers of
// k8s.io/api for kinds that the guide leaves out, and the release notes of 1.20 for PodPreset.
var removals = []removal{
	{"1.16", "apps/v1beta1", "ControllerRevision Deployment ReplicaSet StatefulSet", ""},
	{"1.16", "apps/v1beta2", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet", ""},
	{"1.16", "extensions/v1beta1", "DaemonSet Deployment NetworkPolicy ReplicaSet", ""},
	{"1.16", "extensions/v1beta1", "PodSecurityPolicy", "psp"},
	{"1.20", "settings.k8s.io/v1alpha1", "PodPreset", "podpreset"},
	{"1.22", "admissionregistration.k8s.io/v1beta1", "MutatingWebhookConfiguration ValidatingWebhookConfiguration", ""},
	{"1.22", "apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", ""},
	{"1.22", "apiregistration.k8s.io/v1beta1", "APIService", ""},
	{"1.22", "authentication.k8s.io/v1beta1", "TokenReview", ""},
	{"1.22", "authorization.k8s.io/v1beta1", "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview", ""},
	{"1.22", "certificates.k8s.io/v1beta1", "CertificateSigningRequest", ""},
	{"1.22", "coordination.k8s.io/v1beta1", "Lease", ""},
	{"1.22", "extensions/v1beta1", "Ingress", ""},
	{"1.22", "networking.k8s.io/v1beta1", "Ingress IngressClass", ""},
	{"1.22", "scheduling.k8s.io/v1beta1", "PriorityClass", ""},
	{"1.22", "storage.k8s.io/v1beta1", "CSIDriver CSINode StorageClass VolumeAttachment", ""},
	{"1.24", "storage.k8s.io/v1alpha1", "CSIStorageCapacity VolumeAttachment", ""},
	{"1.25", "autoscaling/v2beta1", "HorizontalPodAutoscaler", ""},
	{"1.25", "batch/v1beta1", "CronJob", ""},
	{"1.25", "discovery.k8s.io/v1beta1", "EndpointSlice", ""},
	{"1.25", "events.k8s.io/v1beta1", "Event", ""},
	{"1.25", "node.k8s.io/v1beta1", "RuntimeClass", ""},
	{"1.25", "policy/v1beta1", "PodDisruptionBudget", ""},
	{"1.25", "policy/v1beta1", "PodSecurityPolicy", "psp"},
	{"1.26", "autoscaling/v2beta2", "HorizontalPodAutoscaler", ""},
	{"1.26", "flowcontrol.apiserver.k8s.io/v1beta1", "FlowSchema PriorityLevelConfiguration", ""},
	{"1.27", "storage.k8s.io/v1beta1", "CSIStorageCapacity", ""},
}

// checkVersion returns an error for an object of a removed version. If a command of postern migrate converts the object,
// it returns a warning instead, so that one command can read what the other one writes.
func checkVersion(u *unstructured.Unstructured) (warning string, err error) {
	removed, r := removalOf(u)
	if removed == "" {
		return "", nil
	}
	if r.command != "" {
		return removed + "; postern migrate " + r.command + " converts it", nil
	}
	return "", errors.New(removed + ": convert it, or take it out")
}

// Removed says which release of Kubernetes removed the version of an object, or returns "" if 1.28 still had it.
func Removed(u *unstructured.Unstructured) string {
	removed, _ := removalOf(u)
	return removed
}

func removalOf(u *unstructured.Unstructured) (string, removal) {
	for _, r := range removals {
		if r.version == u.GetAPIVersion() && slices.Contains(strings.Fields(r.kinds), u.GetKind()) {
			return fmt.Sprintf("Kubernetes %s removed %s of this kind", r.release, r.version), r
		}
	}
	return "", removal{}
}
