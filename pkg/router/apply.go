package router

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// configKey names one webhook configuration.
type configKey struct{ kind, name string }

// desired returns the desired configurations, without their generation.
func (r *Registrar) desired(owner *metav1.OwnerReference) (map[configKey]*unstructured.Unstructured, error) {
	out := map[configKey]*unstructured.Unstructured{}
	add := func(kind string, obj runtime.Object) error {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return fmt.Errorf("converting a %s: %w", kind, err)
		}
		u := &unstructured.Unstructured{Object: content}
		if owner != nil {
			u.SetOwnerReferences([]metav1.OwnerReference{*owner})
		}
		out[configKey{kind, u.GetName()}] = u
		return nil
	}
	at := endpoint{prefix: prefix(r.bundle.PathKeys()), bundle: r.bundle.Bundle()}
	for _, s := range r.services {
		if s.MutatingConfig != nil {
			if err := add("MutatingWebhookConfiguration", r.deployment.mutating(s, at)); err != nil {
				return nil, err
			}
		}
		if s.ValidatingConfig != nil {
			if err := add("ValidatingWebhookConfiguration", r.deployment.validating(s, at)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// ensure applies a configuration, unless the stored configuration already has every field
// of it. Server-side apply keeps the fields of other owners.
func (r *Registrar) ensure(ctx context.Context, key configKey, want *unstructured.Unstructured, store cache.Store) error {
	gen := r.generation
	have, exists := stored(store, key.name)
	if exists && generationOf(have).digest == gen.digest {
		// A replica with the same services wrote this configuration, so its start time may
		// stay.
		gen = generationOf(have)
	}
	annotations := want.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[GenerationAnnotation] = gen.String()
	want.SetAnnotations(annotations)
	if exists {
		r.surplus.join(want.Object, have.Object, time.Now(), r.deployment.keepCAs())
		if seen := r.registeredKey; seen != "" && seen == prefix(r.bundle.PathKeys()) {
			keepSegments(want.Object, have.Object, r.bundle.PathKeys())
		}
		if covers(have.Object, want.Object) && !bundleToDrop(want.Object, have.Object) {
			r.registered(key, nil)
			return nil
		}
		// The applied configuration was made from the stored one. If the stored one is out
		// of date, a CA could be lost.
		want.SetResourceVersion(have.GetResourceVersion())
	}
	r.settled = false
	err := r.apply(ctx, key, want)
	if exists && apierrors.IsConflict(err) {
		return nil // The event with the change follows.
	}
	if exists && apierrors.IsInvalid(err) {
		err = r.replace(ctx, key, want)
	}
	r.registered(key, err)
	if err == nil {
		klog.FromContext(ctx).Info("Registered", "kind", key.kind, "name", key.name, "restored", exists)
	}
	return err
}

func (r *Registrar) apply(ctx context.Context, key configKey, want *unstructured.Unstructured) error {
	data, err := json.Marshal(want)
	if err == nil {
		force := true
		var now *unstructured.Unstructured
		now, err = r.client.Resource(resources()[key.kind]).Patch(ctx, key.name, types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: FieldManager, Force: &force})
		if err == nil {
			err = r.dropBundles(ctx, key, want, now)
		}
	}
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", key.kind, key.name, err)
	}
	return nil
}

// replace replaces the list of webhooks as a whole. Apply cannot remove fields that others
// wrote, and some of their fields exclude Postern's fields: a webhook cannot have both a
// service and a URL.
func (r *Registrar) replace(ctx context.Context, key configKey, want *unstructured.Unstructured) error {
	data, err := json.Marshal(map[string]any{"webhooks": want.Object["webhooks"]})
	if err == nil {
		_, err = r.client.Resource(resources()[key.kind]).Patch(ctx, key.name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: FieldManager})
	}
	if err != nil {
		return fmt.Errorf("replacing the webhooks of %s %s: %w", key.kind, key.name, err)
	}
	return nil
}

func (r *Registrar) registered(key configKey, err error) {
	r.metrics.setRegistered(key.kind, key.name, err == nil)
}

// markUnregistered sets the metric of all configurations to 0.
func (r *Registrar) markUnregistered() {
	for _, s := range r.services {
		if s.MutatingConfig != nil {
			r.metrics.setRegistered("MutatingWebhookConfiguration", s.MutatingConfig.Name, false)
		}
		if s.ValidatingConfig != nil {
			r.metrics.setRegistered("ValidatingWebhookConfiguration", s.ValidatingConfig.Name, false)
		}
	}
}

func stored(store cache.Store, name string) (*unstructured.Unstructured, bool) {
	obj, exists, err := store.GetByKey(name)
	if err != nil || !exists {
		return nil, false
	}
	u, ok := obj.(*unstructured.Unstructured)
	return u, ok
}

// removeStale deletes a configuration that has the Postern label but belongs to no enabled
// service, unless a newer Postern wrote it.
func (r *Registrar) removeStale(ctx context.Context, kind string, u *unstructured.Unstructured, desired map[configKey]*unstructured.Unstructured) error {
	if desired[configKey{kind, u.GetName()}] != nil || generationOf(u).newerThan(r.generation) {
		return nil
	}
	if err := remove(ctx, r.client, resources()[kind], u.GetName(), r.generation); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Deregistered", "kind", kind, "name", u.GetName())
	r.metrics.forget(kind, u.GetName())
	return nil
}

// remove deletes a configuration. It first marks the configuration with its generation, so
// that other Postern replicas see which Postern deleted it and do not restore it.
func remove(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, name string, by generation) error {
	stamp := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, GenerationAnnotation, by.String())
	_, err := client.Resource(gvr).Patch(ctx, name, types.MergePatchType, []byte(stamp), metav1.PatchOptions{FieldManager: FieldManager})
	if err == nil {
		err = client.Resource(gvr).Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s %s: %w", gvr.Resource, name, err)
	}
	return nil
}

// Uninstall removes every configuration that has the Postern label and returns their names.
// Running Postern replicas do not restore them.
func Uninstall(ctx context.Context, client dynamic.Interface) ([]string, error) {
	var removed []string
	by := generation{started: time.Now().UTC().Format(generationTime), digest: uninstalledDigest}
	for _, gvr := range resources() {
		list, err := client.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: ManagedByLabel + "=" + ManagedBy})
		if err != nil {
			return removed, fmt.Errorf("listing %s: %w", gvr.Resource, err)
		}
		for _, u := range list.Items {
			if err := remove(ctx, client, gvr, u.GetName(), by); err != nil {
				return removed, err
			}
			removed = append(removed, gvr.Resource+"/"+u.GetName())
		}
	}
	return removed, nil
}

// owner returns an owner reference to Postern's namespace. The configurations are deleted
// with that namespace. gone reports that the namespace is terminating or does not exist, or
// that the API server could not call a Service in it. In that case there is nothing to
// register.
func (r *Registrar) owner(ctx context.Context) (ref *metav1.OwnerReference, gone bool, err error) {
	ns, err := r.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, r.deployment.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, r.owned || r.deployment.URL == "", nil
	case err != nil:
		return nil, false, fmt.Errorf("reading namespace %s: %w", r.deployment.Namespace, err)
	case ns.GetDeletionTimestamp() != nil:
		return nil, true, nil
	}
	r.owned = true
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.GetName(), UID: ns.GetUID()}, false, nil
}
