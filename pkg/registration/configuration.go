package registration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/pkg/router"
)

const (
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
)

// resources are the two kinds of configuration.
func resources() map[string]schema.GroupVersionResource {
	gv := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return map[string]schema.GroupVersionResource{
		mutatingKind:   gv.WithResource("mutatingwebhookconfigurations"),
		validatingKind: gv.WithResource("validatingwebhookconfigurations"),
	}
}

// configKey names one webhook configuration.
type configKey struct{ kind, name string }

func keyOf(u *unstructured.Unstructured) configKey { return configKey{u.GetKind(), u.GetName()} }

// listManaged returns the configurations that this Postern has registered, by kind.
func (d Deployment) listManaged(ctx context.Context, client dynamic.Interface) (map[string][]*unstructured.Unstructured, error) {
	out := map[string][]*unstructured.Unstructured{}
	for kind, gvr := range resources() {
		list, err := client.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: d.Selector()})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvr.Resource, err)
		}
		for i := range list.Items {
			out[kind] = append(out[kind], &list.Items[i])
		}
	}
	return out, nil
}

// isOurs reports whether this Postern has registered a configuration, even if its labels were removed.
func (d Deployment) isOurs(u *unstructured.Unstructured) bool {
	if u.GetLabels()[NamespaceLabel] != "" {
		return u.GetLabels()[NamespaceLabel] == d.Namespace
	}
	return slices.ContainsFunc(webhookList(u.Object), d.callsUs) || slices.ContainsFunc(u.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == FieldManager && m.Operation == metav1.ManagedFieldsOperationApply
	})
}

func (d Deployment) callsUs(webhook any) bool {
	client, _, _ := unstructured.NestedMap(asMap(webhook), "clientConfig")
	if d.URL != "" {
		url, _ := client["url"].(string)
		return strings.HasPrefix(url, d.base()+"/")
	}
	name, _, _ := unstructured.NestedString(client, "service", "name")
	namespace, _, _ := unstructured.NestedString(client, "service", "namespace")
	return name == d.Service && namespace == d.Namespace
}

func isCanary(u *unstructured.Unstructured) bool {
	_, canary := u.GetAnnotations()[canaryAnnotation]
	return canary
}

// calledPath returns the path, or the URL, of a webhook's client config.
func calledPath(webhook any) string {
	client, _, _ := unstructured.NestedMap(asMap(webhook), "clientConfig")
	if url, ok := client["url"].(string); ok {
		return url
	}
	path, _, _ := unstructured.NestedString(client, "service", "path")
	return path
}

// ourWebhooks returns the webhooks that call Postern, without those of canaries.
func (d Deployment) ourWebhooks(configs []*unstructured.Unstructured) []any {
	var out []any
	for _, u := range configs {
		if isCanary(u) {
			continue
		}
		for _, w := range webhooksByName(u.Object) {
			if d.callsUs(w) {
				out = append(out, w)
			}
		}
	}
	return out
}

func isForOwnNamespace(webhook any) bool {
	conditions, _ := asMap(webhook)["matchConditions"].([]any)
	return named(conditions)[router.OwnNamespace] != nil
}

func webhooksByName(config map[string]any) map[string]any { return named(webhookList(config)) }

func webhookList(config map[string]any) []any {
	list, _ := config["webhooks"].([]any)
	return list
}

// named indexes a list by the field name of its items. It returns nil if an item
// has no name.
func named(list []any) map[string]any {
	out := map[string]any{}
	for _, item := range list {
		m, _ := item.(map[string]any)
		name, ok := m["name"].(string)
		if !ok {
			return nil
		}
		out[name] = item
	}
	return out
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// configurations are the objects in the stores.
func configurations(stores map[string]cache.Store) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, store := range stores {
		out = append(out, objects(store)...)
	}
	return out
}

func objects(store cache.Store) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, obj := range store.List() {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			out = append(out, u)
		}
	}
	return out
}

func stored(store cache.Store, name string) (*unstructured.Unstructured, bool) {
	obj, exists, err := store.GetByKey(name)
	if err != nil || !exists {
		return nil, false
	}
	u, ok := obj.(*unstructured.Unstructured)
	return u, ok
}

// all returns the configurations of both kinds.
func all(byKind map[string][]*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.Concat(slices.Collect(maps.Values(byKind))...)
}
