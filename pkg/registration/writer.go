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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
)

// writer writes and deletes configurations, and tells what it did. Whether it may is decided by others.
type writer struct {
	client     dynamic.Interface
	deployment Deployment
	metrics    *Metrics
	news       news
	had        memory

	// The mutex of the Registrar guards the fields below. Of the methods only write uses them.

	// at is where and with which bundle the API server calls Postern, in this sync.
	at endpoint
	// placed are the segments that this replica last registered or saw registered. While that is the one to register, the
	// segments are left alone that other replicas register then.
	placed map[configKey]string
	// surplus holds the CAs that stay registered for a while.
	surplus surplus
	// repairs tells repairs from changes, and bounds them.
	repairs repairs
}

// write applies a configuration, unless have, which is nil if nothing is stored, already has every field of it. It returns
// the time after which it must be repeated, or 0.
func (w *writer) write(ctx context.Context, key configKey, want, have *unstructured.Unstructured) (again time.Duration, err error) {
	exists, covered := have != nil, false
	if exists {
		w.surplus.join(want.Object, have.Object, time.Now(), w.deployment.keepCAs())
		if s, ok := w.placed[key]; ok && s == w.at.segment {
			w.deployment.keepSegments(want.Object, have.Object, w.at)
		}
		if covered = covers(have.Object, want.Object); covered && len(leftovers(want, have)) == 0 {
			w.placed[key] = w.at.segment
			w.repairs.seen(key, want)
			contested := w.repairs.contested(key, time.Now())
			w.metrics.setRegistered(key.kind, key.name, !contested)
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
	repair := !w.repairs.changed(key, want)
	if repair {
		wait, first := w.repairs.wait(key, time.Now())
		if first {
			log.Info("Somebody keeps changing the webhook configuration, so repairs are rarer now", "interval", repairInterval)
		}
		if wait > 0 {
			w.metrics.setRegistered(key.kind, key.name, false)
			return wait, nil
		}
	}
	now := have
	if !covered {
		now, err = w.apply(ctx, key, want)
	}
	if exists && apierrors.IsInvalid(err) {
		now, err = w.replace(ctx, key, want)
	}
	if err == nil {
		err = w.restrict(ctx, key, want, now)
	}
	if err != nil {
		return 0, err
	}
	w.metrics.setRegistered(key.kind, key.name, !w.repairs.contested(key, time.Now()))
	w.placed[key] = w.at.segment
	w.repairs.seen(key, want)
	w.had.note(key, wasRegistered)
	switch {
	case repair:
		log.Info("Repaired the registration")
		w.news.add(EventRepaired, key.kind, key.name)
	case exists:
		log.Info("Changed the registration")
		w.news.add(EventChanged, key.kind, key.name)
	default:
		log.Info("Registered")
		w.news.add(EventRegistered, key.kind, key.name)
	}
	return 0, nil
}

func (w *writer) apply(ctx context.Context, key configKey, want *unstructured.Unstructured) (now *unstructured.Unstructured, err error) {
	data, err := json.Marshal(want)
	if err == nil {
		force := true
		now, err = w.client.Resource(resources()[key.kind]).Patch(ctx, key.name, types.ApplyPatchType, data,
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
func (w *writer) replace(ctx context.Context, key configKey, want *unstructured.Unstructured) (now *unstructured.Unstructured, err error) {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": want.GetResourceVersion()}, "webhooks": want.Object["webhooks"],
	})
	if err == nil {
		now, err = w.client.Resource(resources()[key.kind]).Patch(ctx, key.name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: FieldManager})
	}
	if err != nil {
		return nil, fmt.Errorf("replacing the webhooks of %s %s: %w", key.kind, key.name, err)
	}
	return now, nil
}

// restrict removes from an applied configuration what leftovers finds.
func (w *writer) restrict(ctx context.Context, key configKey, want, have *unstructured.Unstructured) error {
	patch := leftovers(want, have)
	if len(patch) == 0 {
		return nil
	}
	// Since it was applied, another Deployment may have taken it over.
	claimed := jsonPatch{"op": "test", "path": annotationPath(ClaimAnnotation), "value": want.GetAnnotations()[ClaimAnnotation]}
	now, err := w.patchWebhooks(ctx, key, append([]jsonPatch{claimed}, patch...))
	if err == nil && len(leftovers(want, now)) > 0 {
		err = fmt.Errorf("%s %s: somebody changes the webhooks while they are written", key.kind, key.name)
	}
	return err
}

func (w *writer) patchWebhooks(ctx context.Context, key configKey, patch []jsonPatch) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	u, err := w.client.Resource(resources()[key.kind]).Patch(ctx, key.name, types.JSONPatchType, data, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return nil, fmt.Errorf("changing the webhooks of %s %s: %w", key.kind, key.name, err)
	}
	return u, nil
}

// jsonPatch is an operation of a JSON patch.
type jsonPatch map[string]any

func annotationPath(name string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
}

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

// own reads a configuration of this Postern from the API server. It returns an error if the name is taken by somebody
// else.
func (w *writer) own(ctx context.Context, key configKey) (u *unstructured.Unstructured, exists bool, err error) {
	u, err = w.client.Resource(resources()[key.kind]).Get(ctx, key.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading %s %s: %w", key.kind, key.name, err)
	}
	if w.deployment.isOurs(u) {
		return u, true, nil
	}
	return nil, false, fmt.Errorf("%s %s exists and does not belong to the Postern in namespace %s: delete or rename it", key.kind, key.name, w.deployment.Namespace)
}

// retire returns a func that removes a configuration that is not served any more. The others see in its last state that it was
// not somebody who knows nothing of the webhooks, and do not restore it.
func (w *writer) retire(own claim) func(context.Context, string, *unstructured.Unstructured) error {
	return func(ctx context.Context, kind string, u *unstructured.Unstructured) error {
		if isCanary(u) {
			return w.remove(ctx, kind, u)
		}
		text, err := own.text()
		if err != nil {
			return err
		}
		stamp, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "annotations": map[string]any{RemovedAnnotation: text},
		}})
		if err != nil {
			return fmt.Errorf("encoding a claim: %w", err)
		}
		now, err := w.client.Resource(resources()[kind]).Patch(ctx, u.GetName(), types.MergePatchType, stamp, metav1.PatchOptions{FieldManager: FieldManager})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("marking %s %s, which is not served any more: %w", kind, u.GetName(), err)
		}
		return w.remove(ctx, kind, now)
	}
}

// remove deletes a configuration as it was seen. It fails if somebody has changed it or made it again since.
func (w *writer) remove(ctx context.Context, kind string, u *unstructured.Unstructured) error {
	name := u.GetName()
	uid, version := u.GetUID(), u.GetResourceVersion()
	seen := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
	err := remove(ctx, w.client, resources()[kind], name, seen)
	if err == nil {
		klog.FromContext(ctx).Info("Deregistered", "kind", kind, "name", name)
		w.metrics.forget(kind, name)
		if !isCanary(u) {
			w.news.add(EventDeregistered, kind, name)
		}
	}
	return err
}

func remove(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, name string, o metav1.DeleteOptions) error {
	err := client.Resource(gvr).Delete(ctx, name, o)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s %s: %w", gvr.Resource, name, err)
	}
	return nil
}
