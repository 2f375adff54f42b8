package app

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/internal/footprint"
	"github.com/postern-dev/postern/pkg/admit"
)

// maxServiceAccount is how much memory in bytes a cached ServiceAccount may take. An account that lists three secrets takes 766.
const maxServiceAccount = 8 << 10

// trimmed removes the fields that no plugin reads from an object before it is cached: the managed fields, and the
// images, conditions and volumes of a Node's status. A Node has up to 50 images, each with several names, which are
// most of its memory. Of a large ServiceAccount it leaves no more than admit.TooLarge says: whoever may write Secrets and pods
// can usually write ServiceAccounts too, with many empty items.
func trimmed(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *corev1.Node:
		o.Status.Images, o.Status.Conditions = nil, nil
		o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil
	case *corev1.ServiceAccount:
		text, err := o.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encoding a service account: %w", err)
		}
		if footprint.OfProtobuf(text, reflect.TypeFor[corev1.ServiceAccount]()) > maxServiceAccount {
			return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
				Annotations: map[string]string{admit.TooLarge: ""},
			}}, nil
		}
	}
	return obj, nil
}
