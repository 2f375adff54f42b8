package twoservers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/postern-dev/postern/test/controlplane"
)

// server is one of the two API servers.
type server struct {
	plane  *controlplane.ControlPlane
	mapper meta.RESTMapper
}

func newServer(t *testing.T, plane *controlplane.ControlPlane) *server {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		t.Fatalf("Asking the API server for its resources: %v", err)
	}
	return &server{plane, restmapper.NewDiscoveryRESTMapper(groups)}
}

// request is a request to the API server.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	body         any
	as           string
}

// reply is a response of the API server.
type reply struct {
	code     int
	body     object
	warnings []string
}

func (s *server) send(ctx context.Context, r request) (reply, error) {
	var body bytes.Buffer
	if r.body != nil {
		if err := json.NewEncoder(&body).Encode(r.body); err != nil {
			return reply{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, s.plane.URL()+r.path+"?"+r.query.Encode(), &body)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+s.plane.Token(controlplane.Admin))
	req.Header.Set("Content-Type", r.contentType)
	if r.as != "" {
		req.Header.Set("Impersonate-User", r.as)
		req.Header.Set("Impersonate-Group", "system:authenticated")
		if strings.HasPrefix(r.as, "system:node:") {
			req.Header.Add("Impersonate-Group", "system:nodes")
		}
	}
	resp, err := s.plane.Client().Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	out := reply{code: resp.StatusCode}
	if err := json.Unmarshal(text, &out.body); err != nil {
		return reply{}, fmt.Errorf("%s %s: %s: %s: %w", r.method, r.path, resp.Status, text, err)
	}
	warnings, errs := utilnet.ParseWarningHeaders(resp.Header["Warning"])
	for _, w := range warnings {
		out.warnings = append(out.warnings, w.Text)
	}
	return out, errors.Join(errs...)
}

// strict makes the API server reject unknown fields. In a scenario, an unknown field is a typing error.
func strict() url.Values { return url.Values{"fieldValidation": {"Strict"}} }

// place is the URL path of an object, which need not exist.
type place struct{ collection, name string }

func (p place) item() string { return p.collection + "/" + p.name }

// find returns the place of an object. The place of a Binding or an Eviction is its pod. The place of a TokenRequest is
// its service account.
func (s *server) find(o object, namespace string) (place, error) {
	u := &unstructured.Unstructured{Object: o}
	gvk := u.GroupVersionKind()
	if gvk.Kind == "Binding" || gvk.Kind == "Eviction" {
		gvk = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	}
	if gvk.Kind == "TokenRequest" {
		gvk = schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
	}
	mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return place{}, err
	}
	path := "/apis/" + gvk.Group + "/" + gvk.Version
	if gvk.Group == "" {
		path = "/api/" + gvk.Version
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if own := u.GetNamespace(); own != "" {
			namespace = own
		}
		path += "/namespaces/" + namespace
	}
	return place{path + "/" + mapping.Resource.Resource, u.GetName()}, nil
}

// get returns the object at a place, or nil if there is none.
func (s *server) get(ctx context.Context, p place) (object, error) {
	r, err := s.send(ctx, request{method: http.MethodGet, path: p.item()})
	switch {
	case err != nil:
		return nil, err
	case r.code == http.StatusNotFound:
		return nil, nil
	case r.code != http.StatusOK:
		return nil, fmt.Errorf("reading %s: %v", p.item(), r.body)
	}
	return r.body, nil
}

// make creates an object of the set-up.
func (s *server) make(ctx context.Context, o object, namespace string) error {
	p, err := s.find(o, namespace)
	if err != nil {
		return err
	}
	r, err := s.send(ctx, request{method: http.MethodPost, path: p.collection, query: strict(), contentType: "application/json", body: o})
	if err == nil && r.code != http.StatusCreated {
		err = fmt.Errorf("creating %s: %d %v", p.item(), r.code, r.body["message"])
	}
	return err
}

// request returns the request of a step for the object at a place.
func (s *server) request(ctx context.Context, st *step, at place, namespace string) (request, error) {
	o, verb := st.object()
	o, err := s.withUIDs(ctx, o, namespace)
	if err != nil {
		return request{}, err
	}
	r := request{path: at.item(), query: strict(), contentType: "application/json", body: o, as: st.As}
	if st.Subresource != "" {
		r.path += "/" + st.Subresource
	}
	switch verb {
	case "create":
		r.method = http.MethodPost
		if st.Subresource == "" {
			r.path = at.collection
		}
	case "update":
		r.method = http.MethodPut
		body, err := s.merged(ctx, at, o)
		if err != nil {
			return r, err
		}
		r.body = body
	case "patch":
		r.method, r.contentType = http.MethodPatch, "application/strategic-merge-patch+json"
	case "apply":
		r.method, r.contentType = http.MethodPatch, "application/apply-patch+yaml"
		r.query.Set("fieldManager", "twoservers")
	case "delete":
		r.method, r.body = http.MethodDelete, nil
		if st.DeleteOptions != nil {
			if r.body, err = s.withUIDs(ctx, st.DeleteOptions, namespace); err != nil {
				return r, err
			}
		}
	case "connect":
		r.method, r.body = http.MethodPost, nil
		r.query.Set("command", "true")
		r.query.Set("stdout", "true")
	}
	return r, nil
}

// merged returns the stored object with the changes merged into it.
func (s *server) merged(ctx context.Context, at place, changes object) (object, error) {
	have, err := s.get(ctx, at)
	if err != nil {
		return nil, err
	}
	document, err := json.Marshal(have)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return nil, err
	}
	text, err := jsonpatch.MergePatch(document, patch)
	if err != nil {
		return nil, fmt.Errorf("changing %s: %w", at.item(), err)
	}
	out := object{}
	return out, json.Unmarshal(text, &out)
}
