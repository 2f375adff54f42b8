package registration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/router"
)

// UninstalledAnnotation marks Postern's namespace after an uninstall. While the annotation is there, no replica
// registers anything, and every replica removes what it finds registered. If the value is the UID of a Deployment, the
// replicas of other Deployments ignore the annotation. Without a namespace, Uninstall puts the annotation on the
// configurations before it deletes them.
const UninstalledAnnotation = "postern.dev/uninstalled"

// noticeTime is far longer than an API server needs to notice that a configuration was deleted. An API server
// watches the two kinds independently, so it may notice two changes in the other order without a pause.
const noticeTime = 500 * time.Millisecond

var (
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

	errNamespaceGone = errors.New("the namespace of Postern is terminating or does not exist")
)

// standing returns an owner reference to Postern's namespace. The configurations are deleted
// with that namespace. refusal is the reason for which nothing may be registered, or nil: the
// namespace is terminating or does not exist, or Postern was uninstalled.
func (r *Registrar) standing(ctx context.Context) (ref *metav1.OwnerReference, refusal, err error) {
	name := r.deployment.Namespace
	ns, err := r.client.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	switch {
	case r.uninstalled:
		return nil, errors.New("postern was uninstalled: restart it to install it again"), nil
	case err != nil:
		// A Postern that is called by its URL needs no namespace.
		if r.owned.Load() || r.deployment.URL == "" {
			return nil, errNamespaceGone, nil
		}
		return nil, nil, nil
	case ns.GetDeletionTimestamp() != nil:
		return nil, errNamespaceGone, nil
	}
	if mark, marked := ns.GetAnnotations()[UninstalledAnnotation]; marked && r.concerns(mark) {
		return nil, fmt.Errorf("postern was uninstalled: run kubectl annotate namespace %s %s- to install it again", name, UninstalledAnnotation), nil
	}
	r.owned.Store(true)
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.GetName(), UID: ns.GetUID()}, nil, nil
}

// everyDeployment is the mark that concerns all replicas.
const everyDeployment = "true"

// concerns reports whether the mark of an uninstall concerns this replica. A replica that does not know its Deployment
// heeds every mark, because it could belong to the Deployment that was uninstalled.
func (r *Registrar) concerns(mark string) bool {
	own := string(r.fleet.claim().UID)
	return mark == everyDeployment || own == "" || mark == own
}

// withdraw removes every configuration of this Postern, because nothing may be registered.
func (r *Registrar) withdraw(ctx context.Context, stores map[string]cache.Store, refusal error) error {
	before := r.Status()
	isNew := before == nil || before.Error() != refusal.Error()
	if isNew {
		klog.FromContext(ctx).Info("Not registering", "reason", refusal.Error())
	}
	r.setStatus(refusal)
	configs := map[string][]*unstructured.Unstructured{}
	for kind, store := range stores {
		configs[kind] = objects(store)
	}
	err := inOrderOfRemoval(ctx, r.noticeTime, configs, r.remove)
	r.markUnregistered()
	r.news.take() // The refusal tells it.
	// Other versions may have started meanwhile.
	r.had.clear()
	r.fence.takeTurn()
	if isNew {
		r.tellRefusal(refusal)
	}
	return err
}

// isStale reports whether a configuration that is not desired must be removed. Replicas of which nobody knows yet may need the
// canaries.
func (r *Registrar) isStale(u *unstructured.Unstructured) bool {
	if !isCanary(u) {
		return true
	}
	if v := u.GetResourceVersion(); r.lastCanary != v {
		r.lastCanary, r.canarySince = v, time.Now()
	}
	return time.Since(r.canarySince) >= abandonedTime
}

// inOrderOfRemoval calls remove for all configurations, the validating ones first: without its mutating half, a service
// would deny what that half would have changed. The mutating half therefore stays if the validating half of the same name does.
func inOrderOfRemoval(ctx context.Context, pause time.Duration, configs map[string][]*unstructured.Unstructured, remove func(context.Context, string, *unstructured.Unstructured) error) error {
	var errs []error
	stays := map[string]bool{}
	for _, kind := range []string{validatingKind, mutatingKind} {
		if kind == mutatingKind && len(configs[validatingKind]) > 0 && len(configs[mutatingKind]) > 0 {
			sleep(ctx, pause)
		}
		for _, u := range configs[kind] {
			if stays[u.GetName()] {
				continue
			}
			err := remove(ctx, kind, u)
			errs, stays[u.GetName()] = append(errs, err), err != nil
		}
	}
	return errors.Join(errs...)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// retire returns a func that removes a configuration that is not served any more. The others see in its last state that it was
// not somebody who knows nothing of the webhooks, and do not restore it.
func (r *Registrar) retire(own claim) func(context.Context, string, *unstructured.Unstructured) error {
	return func(ctx context.Context, kind string, u *unstructured.Unstructured) error {
		if isCanary(u) {
			return r.remove(ctx, kind, u)
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
		now, err := r.client.Resource(resources()[kind]).Patch(ctx, u.GetName(), types.MergePatchType, stamp, metav1.PatchOptions{FieldManager: FieldManager})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("marking %s %s, which is not served any more: %w", kind, u.GetName(), err)
		}
		return r.remove(ctx, kind, now)
	}
}

// remove deletes a configuration as it was seen. It fails if somebody has changed it or made it again since.
func (r *Registrar) remove(ctx context.Context, kind string, u *unstructured.Unstructured) error {
	name := u.GetName()
	uid, version := u.GetUID(), u.GetResourceVersion()
	seen := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
	err := remove(ctx, r.client, resources()[kind], name, seen)
	if err == nil {
		klog.FromContext(ctx).Info("Deregistered", "kind", kind, "name", name)
		r.metrics.forget(kind, name)
		if !isCanary(u) {
			r.news.add(EventDeregistered, kind, name)
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

// serves reports whether this replica serves every webhook of a registered configuration that calls Postern.
func (r *Registrar) serves(u *unstructured.Unstructured) bool {
	if isCanary(u) {
		return true // Each replica has a path of its own.
	}
	for _, w := range webhooksByName(u.Object) {
		if r.deployment.callsUs(w) && !r.servesPath(calledPath(w)) {
			return false
		}
	}
	return true
}

// isEmptied reports whether a configuration that this replica does not register calls nobody here any more. Others may repair it.
func (r *Registrar) isEmptied(u *unstructured.Unstructured) bool {
	return !isCanary(u) && !slices.Contains(r.keys(), keyOf(u)) && !slices.ContainsFunc(webhookList(u.Object), r.deployment.callsUs)
}

func (r *Registrar) servesPath(path string) bool {
	for _, s := range r.services {
		if strings.HasSuffix(path, s.Path+router.MutatePath) || strings.HasSuffix(path, s.Path+router.ValidatePath) {
			return true
		}
	}
	return false
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

// Leave makes this replica stop registering. With deregister, and if no other replica stays, it removes every
// configuration, so that nothing calls Postern when this replica has ended.
func (r *Registrar) Leave(ctx context.Context, deregister bool) error {
	r.leaving.Store(true)
	if !deregister || !r.joined.Load() {
		return nil // What is registered may belong to others.
	}
	last, err := r.fleet.isLast(ctx)
	if err != nil || !last {
		return err
	}
	// No sync may be on its way that registers again.
	canceled := false
	patience := time.NewTicker(syncPatience)
	defer patience.Stop()
	for !r.mu.TryLock() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for a registration to end: %w", ctx.Err())
		case <-patience.C:
			(*r.cancelSync.Load())()
			canceled = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	defer r.mu.Unlock()
	defer r.tell()
	remove := func() error { return r.removeAll(ctx) }
	if err = retry.RetryOnConflict(retry.DefaultRetry, remove); err == nil && canceled {
		// The API server may have made a request that was canceled.
		sleep(ctx, noticeTime)
		err = retry.RetryOnConflict(retry.DefaultRetry, remove)
	}
	return err
}

// removeAll removes every configuration, unless others have registered them. A later revision of a Deployment that ends may
// have registered and crashed.
func (r *Registrar) removeAll(ctx context.Context) error {
	configs, err := r.deployment.listManaged(ctx, r.client)
	if err != nil {
		return err
	}
	own := r.fleet.claim()
	v, err := r.fence.look(ctx, own, all(configs))
	if err != nil {
		return err
	}
	ends := false
	if v.yields() && v.rank != foreign && !own.isProcess() {
		if ends, err = r.fence.ends(ctx, own); err != nil {
			return err
		}
	}
	if v.yields() && !ends {
		klog.FromContext(ctx).Info("Not deregistering: the webhooks belong to other replicas")
		return nil
	}
	err = inOrderOfRemoval(ctx, r.noticeTime, configs, r.remove)
	r.markUnregistered()
	r.setStatus(errors.New("the last replica has ended"))
	return err
}

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
