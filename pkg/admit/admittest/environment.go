package admittest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/metrics"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/internal/resources"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Access is one access review and its answer.
type Access struct {
	// An absent User matches any user. The following fields match an equal value, and "*" matches any value.
	User        string `json:"user"`
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	// Allowed is the answer, which defaults to true. Reason is the reason of the authorizer.
	Allowed *bool  `json:"allowed"`
	Reason  string `json:"reason"`
	// Error makes the access review fail.
	Error string `json:"error"`
	// EvaluationError is the error of an authorizer of the API server.
	EvaluationError string `json:"evaluationError"`
}

// CallError makes calls of the API server fail. "*" matches anything.
type CallError struct {
	// Verb is a verb such as get, and Resource a plural such as pods.
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	// Code is the HTTP status code. It defaults to 500.
	Code int `json:"code"`
	// Message is the message of the Status.
	Message string `json:"message"`
}

// Environment is the cluster that a case describes.
type Environment struct {
	// Client, Dynamic and Metadata have the objects of the case. Their calls fail as the case requires. A change of one of them
	// is not seen by the others, except that a patch of Metadata changes the object of Client, or that of Dynamic if
	// k8s.io/api does not have its kind, and not its own.
	Client   *fake.Clientset
	Dynamic  *FakeDynamicClient
	Metadata *metadatafake.FakeMetadataClient
	// Informers use Client, and CustomInformers use Dynamic. The caller starts them.
	Informers       informers.SharedInformerFactory
	CustomInformers dynamicinformer.DynamicSharedInformerFactory
	// Mapper knows the kinds of k8s.io/api and those of the objects and the CustomResourceDefinitions of the case.
	Mapper meta.RESTMapper
	// Clock begins at the time of the case, and only moves between its steps.
	Clock *clocktesting.FakeClock
	// Config is the configuration as the plugin receives it, or nil if there is none.
	Config []byte
	// Backend is the server that the plugin asks, or nil if the case has none.
	Backend *Backend
	// Mixed is that of the Deps.
	Mixed func() bool
	// Background runs the background functions of plugins.
	Background []func(context.Context)

	reviews []Access
	errors  []CallError
	// cleared are the permissions that calls needed before they were forgotten.
	cleared map[access.Permission]bool
}

// Environment returns the cluster of the case. The caller closes it.
func (c *Case) Environment() (*Environment, error) {
	e := &Environment{
		Dynamic: newDynamicClient(), Clock: clocktesting.NewFakeClock(c.Start()), reviews: c.Authorize, errors: c.Errors, cleared: map[access.Permission]bool{},
	}
	defined, err := c.definitions()
	if err != nil {
		return nil, err
	}
	cluster, err := decode(c.Cluster, defined)
	if err != nil {
		return nil, err
	}
	for i, o := range cluster {
		kind := o.untyped.GroupVersionKind()
		if _, err := defined.Resource(kind); err != nil && o.typed == nil {
			return nil, fmt.Errorf("cluster[%d]: %w", i, err)
		}
		defined.Guess(kind, o.untyped.GetNamespace() != "")
	}
	e.Mapper = defined.Mapper()
	partScheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(partScheme); err != nil {
		return nil, fmt.Errorf("adding the type of metadata: %w", err)
	}
	e.Metadata = metadatafake.NewSimpleMetadataClient(partScheme)
	e.Metadata.PrependReactor("patch", "*", e.patchMetadata)
	var typed []runtime.Object
	for i, o := range cluster {
		for _, u := range defined.Versions(o.untyped) {
			if err := e.add(u); err != nil {
				return nil, fmt.Errorf("cluster[%d]: %w", i, err)
			}
		}
		if o.typed != nil {
			typed = append(typed, o.typed)
		}
	}
	// The constructor with support for server-side apply is slow.
	e.Client = fake.NewSimpleClientset(typed...)
	e.Informers = informers.NewSharedInformerFactory(e.Client, 0)
	e.CustomInformers = dynamicinformer.NewDynamicSharedInformerFactory(e.Dynamic, 0)
	e.Client.PrependReactor("create", "subjectaccessreviews", e.review)
	for _, f := range c.Errors {
		e.Client.PrependReactor(f.Verb, f.Resource, f.react)
		e.Dynamic.PrependReactor(f.Verb, f.Resource, f.react)
		e.Metadata.PrependReactor(f.Verb, f.Resource, f.react)
	}
	if c.Backend != nil {
		if e.Backend, err = newBackend(c.Backend); err != nil {
			return nil, err
		}
	}
	if len(c.Config) > 0 {
		e.Config = e.Backend.config(textOf(c.Config))
	}
	return e, nil
}

// Close stops the backend. Informers are stopped by whoever started them.
func (e *Environment) Close() { e.Backend.Close() }

// patchMetadata patches an object of Client, or of Dynamic if Client does not have its kind.
func (e *Environment) patchMetadata(action clienttesting.Action) (bool, runtime.Object, error) {
	tracker := e.Client.Tracker()
	if !scheme.Scheme.IsVersionRegistered(action.GetResource().GroupVersion()) {
		tracker = e.Dynamic.Tracker()
	}
	_, obj, err := clienttesting.ObjectReaction(tracker)(action)
	if err != nil {
		return true, nil, err // It is the answer of an API server.
	}
	part, err := metadataOf(obj)
	return true, part, err
}

// add adds an object of the cluster for the clients that know no types.
func (e *Environment) add(u *unstructured.Unstructured) error {
	kind := u.GroupVersionKind()
	mapping, err := e.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	if err := e.Dynamic.Tracker().Create(mapping.Resource, u, u.GetNamespace()); err != nil {
		return fmt.Errorf("adding the object: %w", err)
	}
	part, err := metadataOf(u)
	if err != nil {
		return err
	}
	if err := e.Metadata.Tracker().Create(mapping.Resource, part, part.Namespace); err != nil {
		return fmt.Errorf("adding the metadata: %w", err)
	}
	return nil
}

// metadataOf returns the metadata of an object as an API server does, which leaves out managed fields that it cannot read.
func metadataOf(obj runtime.Object) (*metav1.PartialObjectMetadata, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata: %w", err)
	}
	part := meta.AsPartialObjectMetadata(m)
	part.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	return part, nil
}

// object is an object of the cluster. Typed is nil for a kind that k8s.io/api does not have.
type object struct {
	untyped *unstructured.Unstructured
	typed   runtime.Object
}

// decode returns the objects of a cluster. A field that a type of k8s.io/api does not have is an error.
func decode(cluster []json.RawMessage, defined resources.Definitions) ([]object, error) {
	out := make([]object, len(cluster))
	for i, raw := range cluster {
		var err error
		if out[i], err = decodeStrictly(raw, defined); err != nil {
			return nil, fmt.Errorf("cluster[%d]: %w", i, err)
		}
	}
	return out, nil
}

func decodeStrictly(raw []byte, defined resources.Definitions) (object, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return object{}, fmt.Errorf("decoding an object: %w", err)
	}
	gvk := u.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" || u.GetName() == "" || u.IsList() {
		return object{}, errors.New("want one object with apiVersion, kind and metadata.name")
	}
	if err := defined.Check(gvk, u.GetNamespace()); err != nil {
		return object{}, fmt.Errorf("%s %s %w", gvk.Kind, u.GetName(), err)
	}
	obj, err := scheme.Scheme.New(gvk)
	if runtime.IsNotRegisteredError(err) {
		if scheme.Scheme.IsVersionRegistered(gvk.GroupVersion()) {
			return object{}, fmt.Errorf("%s has no kind %s", gvk.GroupVersion(), gvk.Kind)
		}
		return object{u, nil}, nil
	}
	if err != nil {
		return object{}, fmt.Errorf("making a %s: %w", gvk.Kind, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, obj, true); err != nil {
		return object{}, fmt.Errorf("%s %s: %w", gvk.Kind, u.GetName(), err)
	}
	return object{u, obj}, nil
}

// Deps returns the dependencies of the plugin, with the given feature gates.
func (e *Environment) Deps(p *admit.Plugin, features map[string]bool) (admit.Deps, error) {
	gate := featuregate.NewFeatureGate()
	if err := gate.Add(p.Features); err != nil {
		return admit.Deps{}, fmt.Errorf("feature gates: %w", err)
	}
	if err := gate.SetFromMap(features); err != nil {
		return admit.Deps{}, fmt.Errorf("features: %w", err)
	}
	return admit.Deps{
		Metrics: metrics.NewKubeRegistry(), Client: e.Client, Dynamic: e.Dynamic, Metadata: e.Metadata, Informers: e.Informers, CustomInformers: e.CustomInformers,
		OptionalInformers: e.CustomInformers, RESTMapper: e.Mapper,
		Authorize: authorization.New(e.Client), Features: gate, Clock: e.Clock, Timeout: 10 * time.Second, Namespace: "postern-system",
		Go: func(f func(context.Context)) { e.Background = append(e.Background, f) }, Mixed: e.Mixed,
	}, nil
}

// flags returns the values of the plugin's flags.
func (c *Case) flags(p *admit.Plugin) (map[string]string, error) {
	for name := range c.Flags {
		if !slices.ContainsFunc(p.Flags, func(f admit.Flag) bool { return f.Name == name }) {
			return nil, fmt.Errorf("flags: %s has no flag %q", p.Name, name)
		}
	}
	return c.Flags, nil
}

// Decide answers an access review according to the case.
func (e *Environment) Decide(user string, a authorizationv1.ResourceAttributes) (admit.Decision, error) {
	for _, x := range e.reviews {
		same := x.User == "" || is(x.User, user)
		for _, pair := range [][2]string{{x.Verb, a.Verb}, {x.Group, a.Group}, {x.Resource, a.Resource}, {x.Subresource, a.Subresource}, {x.Namespace, a.Namespace}, {x.Name, a.Name}} {
			same = same && is(pair[0], pair[1])
		}
		if !same {
			continue
		}
		if x.Error != "" {
			return admit.Decision{}, errors.New(x.Error)
		}
		return admit.Decision{Allowed: x.Allowed == nil || *x.Allowed, Reason: x.Reason, EvaluationError: x.EvaluationError}, nil
	}
	return admit.Decision{}, nil
}

func is(pattern, s string) bool { return pattern == "*" || pattern == s }

func (e *Environment) review(action clienttesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(clienttesting.CreateAction)
	if !ok {
		return false, nil, nil
	}
	review, ok := create.GetObject().(*authorizationv1.SubjectAccessReview)
	if !ok || review.Spec.ResourceAttributes == nil {
		return true, nil, apierrors.NewBadRequest("an access review without resource attributes")
	}
	out := review.DeepCopy()
	d, err := e.Decide(review.Spec.User, *review.Spec.ResourceAttributes)
	out.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: d.Allowed, Reason: d.Reason, EvaluationError: d.EvaluationError}
	return true, out, err
}

func (f CallError) react(action clienttesting.Action) (bool, runtime.Object, error) {
	code := f.Code
	if code == 0 {
		code = http.StatusInternalServerError
	}
	// The reason of a 409 depends on the HTTP verb.
	resource, verb := action.GetResource(), action.GetVerb()
	if verb == "create" {
		verb = http.MethodPost
	}
	status := apierrors.NewGenericServerResponse(code, verb, schema.GroupResource{Group: resource.Group, Resource: resource.Resource}, "", f.Message, 0, false)
	status.ErrStatus.Message = f.Message
	return true, nil, status
}

// Actions returns the calls so far.
func (e *Environment) Actions() []clienttesting.Action {
	return slices.Concat(e.Client.Actions(), e.Dynamic.Actions(), e.Metadata.Actions())
}

// Writes returns the calls so far that changed something, without those that the
// case makes fail.
func (e *Environment) Writes() ([]Write, error) {
	return writes(slices.DeleteFunc(e.Actions(), func(a clienttesting.Action) bool {
		return slices.ContainsFunc(e.errors, func(f CallError) bool { return is(f.Verb, a.GetVerb()) && is(f.Resource, a.GetResource().Resource) })
	}))
}

// Permissions returns the permissions that the calls so far needed, in order, also those that ClearActions forgot. It leaves out
// what Kubernetes permits to every service account: the reads of /version, /api and /apis, and reviews of itself.
func (e *Environment) Permissions() []access.Permission {
	needed := maps.Clone(e.cleared)
	e.addPermissions(needed)
	return slices.SortedFunc(maps.Keys(needed), access.Permission.Compare)
}

func (e *Environment) addPermissions(needed map[access.Permission]bool) {
	for _, a := range e.Actions() {
		p := permissionOf(a)
		// The fake reports discovery as three resources.
		if p.Group == "" && slices.Contains([]string{"version", "group", "resource"}, p.Resource) || p.Group == authorizationv1.GroupName && strings.HasPrefix(p.Resource, "selfsubject") {
			continue
		}
		needed[p] = true
	}
}

// addWatches adds the watches of the informers that listed, which may not have begun yet.
func (e *Environment) addWatches() {
	for _, a := range e.Actions() {
		if list, ok := a.(clienttesting.ListActionImpl); ok && list.ListOptions.ResourceVersion == "0" {
			p := permissionOf(a)
			p.Verb = "watch"
			e.cleared[p] = true
		}
	}
}

// permissionOf returns the permission that a call needs, where client-go's fakes name some calls differently.
func permissionOf(a clienttesting.Action) access.Permission {
	p := access.Permission{Verb: a.GetVerb(), Group: a.GetResource().Group, Resource: a.GetResource().Resource}
	sub := a.GetSubresource()
	_, proxied := a.(clienttesting.ProxyGetAction)
	switch {
	case p.Verb == "delete-collection":
		p.Verb = "deletecollection"
	case p.Resource == "namespaces" && sub == "finalize":
		p.Verb = "update"
	case proxied:
		sub = "proxy"
	}
	if sub != "" {
		p.Resource += "/" + sub
	}
	return p
}

// ClearActions forgets the calls so far.
func (e *Environment) ClearActions() {
	e.addPermissions(e.cleared)
	e.Client.ClearActions()
	e.Dynamic.ClearActions()
	e.Metadata.ClearActions()
}
