package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/router"
)

// configKey names one webhook configuration.
type configKey struct{ kind, name string }

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

// keys returns the keys of the configurations of all services.
func (r *Registrar) keys() []configKey {
	var keys []configKey
	for _, s := range r.services {
		keys = append(keys, r.deployment.keys(s)...)
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

// ensure applies a configuration, unless the stored configuration already has every
// field of it. Server-side apply keeps the fields of other owners. A configuration that
// is not there is added only if mayAdd lets it. It returns
// the time after which it must be repeated, or 0.
func (r *Registrar) ensure(ctx context.Context, key configKey, want *unstructured.Unstructured, own claim, store cache.Store) (again time.Duration, err error) {
	defer func() {
		if err != nil {
			r.metrics.setRegistered(key.kind, key.name, false)
		}
	}()
	have, cached := stored(store, key.name)
	if cached {
		again, err = r.write(ctx, key, want.DeepCopy(), have)
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return again, err
		}
	}
	// Somebody was faster, the cache is late, or the configuration has lost the label by which the cache selects.
	have, exists, err := r.own(ctx, key)
	if err != nil {
		return 0, err
	}
	if !exists {
		if err := r.mayAdd(key, cached); err != nil {
			return 0, err
		}
		return r.write(ctx, key, want, nil)
	}
	if err := r.fence.admit(ctx, own, have); err != nil {
		return 0, err
	}
	return r.write(ctx, key, want, have)
}

// write applies a configuration, unless have, which is nil if nothing is stored, already has every field of it. It returns
// the time after which it must be repeated, or 0.
func (r *Registrar) write(ctx context.Context, key configKey, want, have *unstructured.Unstructured) (again time.Duration, err error) {
	exists, covered := have != nil, false
	if exists {
		r.surplus.join(want.Object, have.Object, time.Now(), r.deployment.keepCAs())
		if s, ok := r.placed[key]; ok && s == r.at.segment {
			r.deployment.keepSegments(want.Object, have.Object, r.at)
		}
		if covered = covers(have.Object, want.Object); covered && len(leftovers(want, have)) == 0 {
			r.placed[key] = r.at.segment
			r.repairs.seen(key, want)
			contested := r.repairs.contested(key, time.Now())
			r.metrics.setRegistered(key.kind, key.name, !contested)
			if contested {
				again = repairInterval
			}
			return again, nil
		}
		// The applied configuration was made from the stored one. If the stored one is out
		// of date, a CA could be lost.
		want.SetResourceVersion(have.GetResourceVersion())
	}
	log := klog.FromContext(ctx).WithValues("kind", key.kind, "name", key.name)
	repair := !r.repairs.changed(key, want)
	if repair {
		wait, first := r.repairs.wait(key, time.Now())
		if first {
			log.Info("Somebody keeps changing the webhook configuration, so repairs are rarer now", "interval", repairInterval)
		}
		if wait > 0 {
			r.metrics.setRegistered(key.kind, key.name, false)
			return wait, nil
		}
	}
	now := have
	if !covered {
		now, err = r.apply(ctx, key, want)
	}
	if exists && apierrors.IsInvalid(err) {
		now, err = r.replace(ctx, key, want)
	}
	if err == nil {
		err = r.restrict(ctx, key, want, now)
	}
	if err != nil {
		return 0, err
	}
	r.metrics.setRegistered(key.kind, key.name, !r.repairs.contested(key, time.Now()))
	r.placed[key] = r.at.segment
	r.repairs.seen(key, want)
	r.had.note(key, wasRegistered)
	switch {
	case repair:
		log.Info("Repaired the registration")
		r.news.add(EventRepaired, key.kind, key.name)
	case exists:
		log.Info("Changed the registration")
		r.news.add(EventChanged, key.kind, key.name)
	default:
		log.Info("Registered")
		r.news.add(EventRegistered, key.kind, key.name)
	}
	return 0, nil
}

// own reads a configuration of this Postern from the API server. It returns an error if the name is taken by somebody
// else.
func (r *Registrar) own(ctx context.Context, key configKey) (u *unstructured.Unstructured, exists bool, err error) {
	u, err = r.client.Resource(resources()[key.kind]).Get(ctx, key.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading %s %s: %w", key.kind, key.name, err)
	}
	if r.deployment.isOurs(u) {
		return u, true, nil
	}
	return nil, false, fmt.Errorf("%s %s exists and does not belong to the Postern in namespace %s: delete or rename it", key.kind, key.name, r.deployment.Namespace)
}

// isOurs reports whether this Postern has registered a configuration, even if its labels were removed.
func (d Deployment) isOurs(u *unstructured.Unstructured) bool {
	if u.GetLabels()[NamespaceLabel] != "" {
		return u.GetLabels()[NamespaceLabel] == d.Namespace
	}
	for _, w := range webhooksByName(u.Object) {
		if d.callsUs(w) {
			return true
		}
	}
	for _, m := range u.GetManagedFields() {
		if m.Manager == FieldManager && m.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}

func (r *Registrar) apply(ctx context.Context, key configKey, want *unstructured.Unstructured) (now *unstructured.Unstructured, err error) {
	data, err := json.Marshal(want)
	if err == nil {
		force := true
		now, err = r.client.Resource(resources()[key.kind]).Patch(ctx, key.name, types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: FieldManager, Force: &force})
	}
	if err != nil {
		return nil, fmt.Errorf("applying %s %s: %w", key.kind, key.name, err)
	}
	return now, nil
}

// replace replaces the list of webhooks as a whole. Apply cannot remove fields that others
// wrote, and some of their fields exclude Postern's fields: a webhook cannot have both a
// service and a URL.
func (r *Registrar) replace(ctx context.Context, key configKey, want *unstructured.Unstructured) (now *unstructured.Unstructured, err error) {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": want.GetResourceVersion()}, "webhooks": want.Object["webhooks"],
	})
	if err == nil {
		now, err = r.client.Resource(resources()[key.kind]).Patch(ctx, key.name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: FieldManager})
	}
	if err != nil {
		return nil, fmt.Errorf("replacing the webhooks of %s %s: %w", key.kind, key.name, err)
	}
	return now, nil
}

// restrict removes from an applied configuration what leftovers finds.
func (r *Registrar) restrict(ctx context.Context, key configKey, want, have *unstructured.Unstructured) error {
	patch := leftovers(want, have)
	if len(patch) == 0 {
		return nil
	}
	// Since it was applied, another Deployment may have taken it over.
	claimed := jsonPatch{"op": "test", "path": annotationPath(ClaimAnnotation), "value": want.GetAnnotations()[ClaimAnnotation]}
	now, err := r.patchWebhooks(ctx, key, append([]jsonPatch{claimed}, patch...))
	if err == nil && len(leftovers(want, now)) > 0 {
		err = fmt.Errorf("%s %s: somebody changes the webhooks while they are written", key.kind, key.name)
	}
	return err
}

func annotationPath(name string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
}

// jsonPatch is an operation of a JSON patch.
type jsonPatch map[string]any

// leftovers returns the operations that remove from have what others have added and apply leaves there: the mark of a removal, match
// conditions, each of which restricts the requests for which the API server calls a webhook, and a caBundle where none is wanted.
func leftovers(want, have *unstructured.Unstructured) (patch []jsonPatch) {
	if _, marked := have.GetAnnotations()[RemovedAnnotation]; marked {
		// A replica has ended before it removed the configuration.
		patch = append(patch, jsonPatch{"op": "remove", "path": annotationPath(RemovedAnnotation)})
	}
	wanted := webhooksByName(want.Object)
	for i, w := range webhookList(have.Object) {
		name, _ := asMap(w)["name"].(string)
		mine, ours := wanted[name]
		if !ours {
			continue
		}
		path := fmt.Sprintf("/webhooks/%d", i)
		var ops []jsonPatch
		if caBundle(mine) == "" && caBundle(w) != "" {
			ops = append(ops, jsonPatch{"op": "remove", "path": path + "/clientConfig/caBundle"})
		}
		if conditions := asMap(mine)["matchConditions"]; !reflect.DeepEqual(asMap(w)["matchConditions"], conditions) {
			ops = append(ops, jsonPatch{"op": "add", "path": path + "/matchConditions", "value": conditions})
		}
		if ops != nil {
			patch = append(patch, jsonPatch{"op": "test", "path": path + "/name", "value": name})
			patch = append(patch, ops...)
		}
	}
	return patch
}

// markUnregistered sets the metric of all configurations to 0.
func (r *Registrar) markUnregistered() {
	r.forgetNarrowed()
	for _, key := range r.keys() {
		r.metrics.setRegistered(key.kind, key.name, false)
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
