package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/pkg/admit"
)

type reportKey struct{}

// WithReport returns a context in which report is called with what the cluster does not know when a plugin needs it, such as
// "PriorityClass high".
func WithReport(ctx context.Context, report func(missing string)) context.Context {
	return context.WithValue(ctx, reportKey{}, report)
}

func report(ctx context.Context, format string, args ...any) {
	if f, ok := ctx.Value(reportKey{}).(func(string)); ok {
		f(fmt.Sprintf(format, args...))
	}
}

// Config returns the configuration of clients that read the cluster.
func (c *Cluster) Config() *rest.Config {
	return &rest.Config{Host: "https://snapshot.invalid", Transport: c}
}

// Authorize is an admit.AuthorizeFunc. It allows everything, as the API server does for system:masters, and reports what it does not
// know for all others.
func (c *Cluster) Authorize(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (admit.Decision, error) {
	if allowed, known := mayFinalize(spec); known {
		return admit.Decision{Allowed: allowed}, nil
	}
	if !slices.Contains(spec.Groups, user.SystemPrivilegedGroup) {
		report(ctx, "whether %s may %s", spec.User, describe(spec))
	}
	return admit.Decision{Allowed: true}, nil
}

// mayFinalize says whether a controller of Kubernetes may update finalizers. The roles that every API server has from its start permit
// those of its own resource.
//
// Upstream: k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go.
func mayFinalize(spec authorizationv1.SubjectAccessReviewSpec) (allowed, known bool) {
	own, ok := map[string]string{
		"deployment-controller": "deployments.apps", "replicaset-controller": "replicasets.apps", "statefulset-controller": "statefulsets.apps",
		"daemon-set-controller": "daemonsets.apps", "job-controller": "jobs.batch", "cronjob-controller": "cronjobs.batch",
		"replication-controller": "replicationcontrollers",
	}[strings.TrimPrefix(spec.User, "system:serviceaccount:"+metav1.NamespaceSystem+":")]
	a := spec.ResourceAttributes
	if !ok || a == nil || a.Verb != "update" || a.Subresource != "finalizers" {
		return false, false
	}
	return (schema.GroupResource{Group: a.Group, Resource: a.Resource}).String() == own, true
}

func describe(spec authorizationv1.SubjectAccessReviewSpec) string {
	a := spec.ResourceAttributes
	if a == nil {
		n := ptr.Deref(spec.NonResourceAttributes, authorizationv1.NonResourceAttributes{})
		return n.Verb + " " + n.Path
	}
	out := a.Verb + " " + schema.GroupResource{Group: a.Group, Resource: a.Resource}.String()
	if a.Subresource != "" {
		out += "/" + a.Subresource
	}
	if a.Name != "" {
		out += " " + strconv.Quote(a.Name)
	}
	if a.Namespace != "" {
		out += " in the namespace " + a.Namespace
	}
	return out
}

var infos = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// RoundTrip implements http.RoundTripper: it answers as an API server with the objects of the cluster.
func (c *Cluster) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	answer, err := c.answer(req)
	if wait, ok := answer.(silence); ok && err == nil {
		return respond(req, http.StatusOK, wait, -1), nil
	}
	code := http.StatusOK
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		answer, code = s, int(s.Code)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return respond(req, code, io.NopCloser(bytes.NewReader(text)), int64(len(text))), nil
}

func respond(req *http.Request, code int, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: length,
	}
}

// silence is the body of a watch in which nothing happens until the client ends it.
type silence struct{ context.Context } //nolint:containedctx // a body is read without a context

// Read implements io.Reader.
func (s silence) Read([]byte) (int, error) {
	<-s.Done()
	return 0, io.EOF
}

// Close implements io.Closer.
func (silence) Close() error { return nil }

func (c *Cluster) answer(req *http.Request) (any, error) {
	info, err := infos.NewRequestInfo(req)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	switch {
	case req.URL.Path == "/version":
		return version.Info{Major: "1", Minor: strings.TrimPrefix(admit.Kubernetes, "1."), GitVersion: "v" + admit.Kubernetes + ".0"}, nil
	case !info.IsResourceRequest:
		return nil, apierrors.NewServiceUnavailable("the cluster in files answers no " + req.URL.Path)
	case info.Subresource != "":
		return nil, apierrors.NewServiceUnavailable("the cluster in files has no " + info.Resource + "/" + info.Subresource)
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if resource.GroupResource() == namespaces.GroupResource() {
		info.Namespace = "" // It is that of the object itself.
	}
	partial := strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata")
	switch info.Verb {
	case "get":
		raw, err := c.lookUp(req.Context(), resource, info.Namespace, info.Name)
		if err != nil || !partial {
			return raw, err
		}
		return partOf(raw)
	case "watch":
		if query := req.URL.Query(); query.Get("sendInitialEvents") == "true" {
			return nil, apierrors.NewBadRequest("list before you watch")
		}
		return silence{req.Context()}, nil
	case "list":
		return c.selected(resource, info.Namespace, req.URL.Query(), partial)
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("nothing is written: %s of %s", info.Verb, resource.GroupResource()))
}

// lookUp returns an object. One that may exist is made up, and reported.
func (c *Cluster) lookUp(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (json.RawMessage, error) {
	raw, known := c.get(resource, namespace, name)
	// A controller adds it to each namespace. A namespace that the state does not have is a new one.
	made := resource == accounts && name == "default" && (!known || !c.had(namespace))
	switch {
	case raw != nil:
		return raw, nil
	case known && !made:
		return nil, apierrors.NewNotFound(resource.GroupResource(), name)
	}
	kind := c.kindOf(resource)
	if made {
		c.mu.Lock()
		c.assumedAccounts[namespace] = true
		c.mu.Unlock()
	} else {
		report(ctx, "%s %s", kind.Kind, cache.NewObjectName(namespace, name))
	}
	u := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uuid.NewUUID()}}
	u.SetGroupVersionKind(kind)
	return json.Marshal(u)
}

// selected returns a page of a list of the objects that selectors select. Of the fields, any text can be selected. The objects may
// not change between two pages.
func (c *Cluster) selected(resource schema.GroupVersionResource, namespace string, query url.Values, partial bool) (any, error) {
	labeled, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	named, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var selected []json.RawMessage
	for _, raw := range c.list(resource, namespace) {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		if labeled.Matches(labels.Set(u.GetLabels())) && matches(named, u) {
			selected = append(selected, raw)
		}
	}
	list := map[string]any{"resourceVersion": "1"}
	start, _ := strconv.Atoi(query.Get("continue"))
	selected = selected[min(max(start, 0), len(selected)):]
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && limit < len(selected) {
		selected, list["continue"] = selected[:limit], strconv.Itoa(start+limit)
	}
	items := make([]any, 0, len(selected))
	for _, raw := range selected {
		if !partial {
			items = append(items, raw)
			continue
		}
		part, err := partOf(raw)
		if err != nil {
			return nil, err
		}
		items = append(items, part)
	}
	kind := c.kindOf(resource)
	if partial {
		kind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	}
	return map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List", "metadata": list, "items": items}, nil
}

// kindOf returns the kind of a resource, or something in its place if nobody defines the resource.
func (c *Cluster) kindOf(resource schema.GroupVersionResource) schema.GroupVersionKind {
	kind, err := c.mapper.KindFor(resource)
	if err != nil {
		return resource.GroupVersion().WithKind(resource.Resource)
	}
	return kind
}

func matches(selector fields.Selector, u *unstructured.Unstructured) bool {
	set := fields.Set{}
	for _, r := range selector.Requirements() {
		set[r.Field], _, _ = unstructured.NestedString(u.Object, strings.Split(r.Field, ".")...)
	}
	return selector.Matches(set)
}

// partOf returns the metadata of an object.
func partOf(raw json.RawMessage) (*metav1.PartialObjectMetadata, error) {
	part := &metav1.PartialObjectMetadata{}
	err := json.Unmarshal(raw, part)
	part.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return part, err
}
