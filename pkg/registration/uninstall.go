package registration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Uninstall removes every configuration of the Postern in the namespace of d, and returns their names. It marks the
// namespace first, so that no replica registers again. A replica that sees the mark also removes the configurations.
// deployment is the UID of the Deployment whose replicas must not register again. If it is empty, no replica registers.
func Uninstall(ctx context.Context, client dynamic.Interface, d Deployment, deployment string) ([]string, error) {
	before, err := d.listManaged(ctx, client)
	if err != nil {
		return nil, err
	}
	stamp := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, UninstalledAnnotation, cmp.Or(deployment, everyDeployment))
	_, err = client.Resource(namespaces).Patch(ctx, d.Namespace, types.MergePatchType, stamp, metav1.PatchOptions{FieldManager: FieldManager})
	marked := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("annotating namespace %s with %s: %w", d.Namespace, UninstalledAnnotation, err)
	}
	// A replica may have registered something before it saw the mark.
	after, err := d.listManaged(ctx, client)
	if err != nil {
		return nil, err
	}
	removed := map[string]bool{}
	for _, configs := range []map[string][]*unstructured.Unstructured{before, after} {
		err := inOrderOfRemoval(ctx, noticeTime, configs, func(ctx context.Context, kind string, u *unstructured.Unstructured) error {
			gvr := resources()[kind]
			name := gvr.Resource + "/" + u.GetName()
			if removed[name] {
				return nil
			}
			err := uninstall(ctx, client, gvr, u.GetName(), marked, stamp)
			removed[name] = err == nil
			return err
		})
		if err != nil {
			maps.DeleteFunc(removed, func(_ string, done bool) bool { return !done })
			return slices.Sorted(maps.Keys(removed)), err
		}
	}
	return slices.Sorted(maps.Keys(removed)), nil
}

// uninstall deletes a configuration. Without a namespace, the mark is on the configuration.
func uninstall(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, name string, marked bool, stamp []byte) error {
	if !marked {
		_, err := client.Resource(gvr).Patch(ctx, name, types.MergePatchType, stamp, metav1.PatchOptions{FieldManager: FieldManager})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("annotating %s %s: %w", gvr.Resource, name, err)
		}
	}
	return remove(ctx, client, gvr, name, metav1.DeleteOptions{})
}
