package registration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/postern-dev/postern/pkg/router"
)

// objectKey is one object in the store of a simulatedServer.
type objectKey struct {
	gvr  schema.GroupVersionResource
	name string
}

// etcd is what etcd holds. The objects are never modified.
type etcd struct {
	objects map[objectKey]*unstructured.Unstructured
	// applied holds the names of the webhooks that Postern's field manager owns.
	applied map[objectKey][]string
	// version and uids count, so that an older store gives the versions and UIDs of later objects again.
	version, uids int
	// template is what the Deployment runs, and configMaps the flags of a template that were changed since, by its hash.
	template   *release
	configMaps map[string]*release
}

func (s etcd) clone() etcd {
	s.objects, s.applied, s.configMaps = maps.Clone(s.objects), maps.Clone(s.applied), maps.Clone(s.configMaps)
	return s
}

// simulatedServer is an API server that stores objects as a real one does, as far as the registrar uses it.
type simulatedServer struct {
	etcd

	away bool
	// changed is called after each change with the states before and after it, of which one may be nil.
	changed func(key objectKey, before, after *unstructured.Unstructured)
}

func isConfiguration(gvr schema.GroupVersionResource) bool {
	return gvr == resources()[mutatingKind] || gvr == resources()[validatingKind]
}

// put stores an object. It takes the object over.
func (s *simulatedServer) put(gvr schema.GroupVersionResource, u *unstructured.Unstructured) *unstructured.Unstructured {
	key := objectKey{gvr, u.GetName()}
	before := s.objects[key]
	s.version++
	u.SetResourceVersion(strconv.Itoa(s.version))
	if before == nil && u.GetUID() == "" {
		s.uids++
		u.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
	}
	s.objects[key] = u
	s.changed(key, before, u)
	return u
}

func (s *simulatedServer) drop(key objectKey) {
	before := s.objects[key]
	s.version++
	delete(s.objects, key)
	delete(s.applied, key)
	s.changed(key, before, nil)
}

// edit changes an object as somebody who knows nothing of Postern.
func (s *simulatedServer) edit(key objectKey, change func(*unstructured.Unstructured)) {
	if u := s.objects[key]; u != nil {
		u = u.DeepCopy()
		change(u)
		s.put(key.gvr, u)
	}
}

// allConfigs returns the stored configurations of both kinds.
func (s *simulatedServer) allConfigs() []*unstructured.Unstructured {
	return slices.Concat(s.configs(mutatingKind), s.configs(validatingKind))
}

// configs returns the stored configurations, without that of the canaries, in the order of their names.
func (s *simulatedServer) configs(kind string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for key, u := range s.objects {
		if key.gvr == resources()[kind] && !isCanary(u) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, compareNames)
	return out
}

func compareNames(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) }

// simulatedClient makes the requests of one process, or of a user. Methods that are not defined here panic.
type simulatedClient struct {
	dynamic.NamespaceableResourceInterface

	server *simulatedServer
	gvr    schema.GroupVersionResource
	// before is called before each request, and after each write that the server has made. If either returns an error, that is
	// the answer.
	before, after func() error
	// canary answers the request for the canary.
	canary func(lease *unstructured.Unstructured) error
}

func (c simulatedClient) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	c.gvr = gvr
	return c
}

func (c simulatedClient) Namespace(string) dynamic.ResourceInterface { return c }

// find returns an object, or the error of the API server.
func (c simulatedClient) find(name string) (*unstructured.Unstructured, error) {
	if err := c.before(); err != nil {
		return nil, err
	}
	if c.server.away {
		return nil, apierrors.NewServiceUnavailable("away")
	}
	u := c.server.objects[objectKey{c.gvr, name}]
	if u == nil {
		return nil, apierrors.NewNotFound(c.gvr.GroupResource(), name)
	}
	return u, nil
}

func (c simulatedClient) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	return c.find(name)
}

func (c simulatedClient) List(_ context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if _, err := c.find(""); !apierrors.IsNotFound(err) {
		return nil, err
	}
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	for key, u := range c.server.objects {
		if key.gvr == c.gvr && selector.Matches(labels.Set(u.GetLabels())) {
			list.Items = append(list.Items, *u)
		}
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return compareNames(&a, &b) })
	return list, nil
}

// Create answers the request for the canary, which is a dry run.
func (c simulatedClient) Create(_ context.Context, u *unstructured.Unstructured, o metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if len(o.DryRun) == 0 {
		panic("a process creates something")
	}
	if _, err := c.find(""); !apierrors.IsNotFound(err) {
		return nil, err
	}
	return nil, c.canary(u)
}

func (c simulatedClient) Delete(_ context.Context, name string, o metav1.DeleteOptions, _ ...string) error {
	u, err := c.find(name)
	if err != nil {
		return err
	}
	if p := o.Preconditions; p != nil && (*p.UID != u.GetUID() || *p.ResourceVersion != u.GetResourceVersion()) {
		return apierrors.NewConflict(c.gvr.GroupResource(), name, errors.New("precondition failed"))
	}
	c.server.drop(objectKey{c.gvr, name})
	return c.after()
}

func (c simulatedClient) Apply(ctx context.Context, name string, u *unstructured.Unstructured, o metav1.ApplyOptions, _ ...string) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	return c.Patch(ctx, name, types.ApplyPatchType, data, o.ToPatchOptions())
}

func (c simulatedClient) Patch(_ context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	have, err := c.find(name)
	var now *unstructured.Unstructured
	switch {
	case err != nil && (!apierrors.IsNotFound(err) || kind != types.ApplyPatchType):
		return nil, err
	case kind == types.ApplyPatchType:
		now, err = c.applied(name, have, data, o.FieldManager)
	case kind == types.MergePatchType:
		now, err = c.merged(have, data)
	case kind == types.JSONPatchType:
		now, err = c.patched(have, data)
	default:
		panic(kind)
	}
	if err != nil {
		return nil, err
	}
	if have != nil && text(have) == text(now) {
		return have, c.after() // The API server stores nothing if nothing changes.
	}
	now = c.server.put(c.gvr, now)
	return now, c.after()
}

// applied returns an object after server-side apply. Webhooks of Postern's manager that are not in the patch are removed.
func (c simulatedClient) applied(name string, have *unstructured.Unstructured, data []byte, manager string) (*unstructured.Unstructured, error) {
	want := &unstructured.Unstructured{}
	if err := want.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	key := objectKey{c.gvr, name}
	if v := want.GetResourceVersion(); v != "" && (have == nil || have.GetResourceVersion() != v) {
		return nil, apierrors.NewConflict(c.gvr.GroupResource(), name, errors.New("the object has been modified"))
	}
	now := want.DeepCopy()
	if have != nil {
		now = have.DeepCopy()
		now.Object = merge(now.Object, want.Object).(map[string]any)
	}
	if manager == FieldManager {
		wanted := webhooksByName(want.Object)
		now.Object["webhooks"] = slices.DeleteFunc(slices.Clone(webhookList(now.Object)), func(w any) bool {
			name := asMap(w)["name"].(string)
			return wanted[name] == nil && slices.Contains(c.server.applied[key], name)
		})
		c.server.applied[key] = slices.Sorted(maps.Keys(wanted))
	}
	return now, nil
}

// merged returns an object after a merge patch.
func (c simulatedClient) merged(have *unstructured.Unstructured, data []byte) (*unstructured.Unstructured, error) {
	patch := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal(data, &patch.Object); err != nil {
		return nil, err
	}
	if v := patch.GetResourceVersion(); v != "" && v != have.GetResourceVersion() {
		return nil, apierrors.NewConflict(c.gvr.GroupResource(), have.GetName(), errors.New("the object has been modified"))
	}
	if uid := patch.GetUID(); uid != "" && uid != have.GetUID() {
		return nil, apierrors.NewConflict(c.gvr.GroupResource(), have.GetName(), errors.New("the UID differs"))
	}
	return changedBy(have, func(old []byte) ([]byte, error) { return jsonpatch.MergePatch(old, data) })
}

func (c simulatedClient) patched(have *unstructured.Unstructured, data []byte) (*unstructured.Unstructured, error) {
	now, err := changedBy(have, func(old []byte) ([]byte, error) { return applyJSONPatch(old, data) })
	if err != nil {
		return nil, apierrors.NewInvalid(have.GroupVersionKind().GroupKind(), have.GetName(), nil)
	}
	return now, nil
}

func applyJSONPatch(old, patch []byte) ([]byte, error) {
	ops, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	return ops.Apply(old)
}

func changedBy(have *unstructured.Unstructured, change func([]byte) ([]byte, error)) (*unstructured.Unstructured, error) {
	data, err := have.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if data, err = change(data); err != nil {
		return nil, err
	}
	now := &unstructured.Unstructured{}
	return now, now.UnmarshalJSON(data)
}

// errLost is the answer of a request of which the process does not know whether it was made.
var errLost = apierrors.NewTimeoutError("the answer is lost", 1)

// canaryAnswer is how the API server passes on the answer of a canary.
func canaryAnswer(reached bool, webhook string) func(*unstructured.Unstructured) error {
	if reached {
		return func(lease *unstructured.Unstructured) error { return denied(router.CanaryAnswer(lease.GetName())) }
	}
	return func(lease *unstructured.Unstructured) error { return noRoute(webhook, lease) }
}
