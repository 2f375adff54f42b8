package registration

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/router"
)

// keys returns the keys of the configurations that a service registers.
func (d Deployment) keys(s router.AdmissionService) []configKey {
	var keys []configKey
	if s.MutatingConfig != nil {
		keys = append(keys, configKey{mutatingKind, d.ConfigName(s.MutatingConfig.Name)})
	}
	if s.ValidatingConfig != nil {
		keys = append(keys, configKey{validatingKind, d.ConfigName(s.ValidatingConfig.Name)})
	}
	return keys
}

// desired returns the configurations of all services, with the claim of this replica.
func (r *Registrar) desired(owner *metav1.OwnerReference, own claim, at endpoint) (map[configKey]*unstructured.Unstructured, error) {
	out := map[configKey]*unstructured.Unstructured{}
	claimed, err := own.text()
	if err != nil {
		return nil, err
	}
	add := func(obj runtime.Object) error {
		u, err := owned(obj, owner)
		if err != nil {
			return err
		}
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[ClaimAnnotation] = claimed
		u.SetAnnotations(annotations)
		out[configKey{u.GetKind(), u.GetName()}] = u
		return nil
	}
	for _, s := range r.services {
		if s.MutatingConfig != nil {
			if err := add(r.deployment.mutating(s, at)); err != nil {
				return nil, err
			}
		}
		if s.ValidatingConfig != nil {
			if err := add(r.deployment.validating(s, at)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// endpoint returns where and with which bundle the API server calls Postern now.
func (r *Registrar) endpoint() endpoint {
	at := endpoint{bundle: r.bundle.Bundle()}
	at.segment, at.others = r.segments.Target()
	return at
}

// owned returns a configuration with the owner, which may be nil.
func owned(obj runtime.Object, owner *metav1.OwnerReference) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("converting a webhook configuration: %w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	if owner != nil {
		u.SetOwnerReferences([]metav1.OwnerReference{*owner})
	}
	return u, nil
}
