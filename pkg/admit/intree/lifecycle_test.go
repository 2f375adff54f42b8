package intree_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/intree"
	"github.com/postern-dev/postern/pkg/router"
)

func lifecyclePlugin() *admit.Plugin {
	rules := []admit.Rule{
		admit.On("namespaces", admissionv1.Delete),
		{Group: "*", Resources: []string{"*/*"}, Operations: []admissionv1.Operation{admissionv1.Create}, Scope: admissionregistrationv1.NamespacedScope},
	}
	return intree.Plugin(lifecycle.PluginName, rules, func(io.Reader) (admission.Interface, error) {
		return lifecycle.NewLifecycle(sets.New(metav1.NamespaceDefault, metav1.NamespaceSystem))
	})
}

func namespace(name string, phase corev1.NamespacePhase) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: phase}}
}

// serve returns the service of one plugin and syncs the informers that the plugin requests.
func serve(t *testing.T, d admit.Deps, p *admit.Plugin, config []byte) router.AdmissionService {
	t.Helper()
	s, err := admit.Family{Name: "test", Plugins: []*admit.Plugin{p}}.Service(d, map[string][]byte{p.Name: config})
	if err != nil {
		t.Fatalf("Making the service: %v", err)
	}
	if d.Informers != nil {
		d.Informers.Start(t.Context().Done())
		for kind, ok := range d.Informers.WaitForCacheSync(t.Context().Done()) {
			if !ok {
				t.Fatalf("The informer for %v did not sync", kind)
			}
		}
	}
	return s
}

func raw(t *testing.T, obj any) runtime.RawExtension {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: data}
}

func newPod(t *testing.T, ns string) *admissionv1.AdmissionRequest {
	t.Helper()
	return &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: ns, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object:   raw(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Namespace: ns}}),
	}
}

func deleteNamespace(name string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Operation: admissionv1.Delete, Namespace: name, Name: name, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Namespace"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
	}
}

func TestNamespaceLifecycle(t *testing.T) {
	client := fake.NewClientset(namespace("live", corev1.NamespaceActive), namespace("dying", corev1.NamespaceTerminating), namespace("default", corev1.NamespaceActive))
	s := serve(t, admit.Deps{Client: client, Informers: informers.NewSharedInformerFactory(client, 0)}, lifecyclePlugin(), nil)
	if s.Validate != nil {
		t.Error("The plugin has no Validate, and neither should the service")
	}
	review := newPod(t, "nowhere")
	review.Resource = metav1.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "localsubjectaccessreviews"}
	for _, c := range []struct {
		name string
		ar   *admissionv1.AdmissionRequest
		want *metav1.Status
	}{
		{"a pod in a namespace", newPod(t, "live"), nil},
		{"a pod in a namespace that ends", newPod(t, "dying"), &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: `pods "web-" is forbidden: unable to create new content in namespace dying because it is being terminated`,
			Details: &metav1.StatusDetails{Name: "web-", Kind: "pods", Causes: []metav1.StatusCause{
				{Type: corev1.NamespaceTerminatingCause, Message: "namespace dying is being terminated", Field: "metadata.namespace"},
			}},
		}},
		{"a pod in no namespace", newPod(t, "nowhere"), &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: `namespaces "nowhere" not found`, Details: &metav1.StatusDetails{Name: "nowhere", Kind: "namespaces"},
		}},
		{"an access review in no namespace", review, nil},
		{"the end of an immortal namespace", deleteNamespace("default"), &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: `namespaces "default" is forbidden: this namespace may not be deleted`,
			Details: &metav1.StatusDetails{Name: "default", Kind: "namespaces"},
		}},
		{"the end of another namespace", deleteNamespace("live"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := s.Mutate(t.Context(), c.ar)
			if diff := cmp.Diff(resp.Result, c.want); diff != "" || resp.Allowed != (c.want == nil) || resp.Patch != nil {
				t.Errorf("Got allowed %v, patch %s and another status (-got +want):\n%s", resp.Allowed, resp.Patch, diff)
			}
		})
	}
}

// TestNamespaceLifecycleAsksTheClient covers a new namespace that is not in the cache yet.
func TestNamespaceLifecycleAsksTheClient(t *testing.T) {
	empty, client := fake.NewClientset(), fake.NewClientset(namespace("new", corev1.NamespaceActive))
	s := serve(t, admit.Deps{Client: client, Informers: informers.NewSharedInformerFactory(empty, 0)}, lifecyclePlugin(), nil)
	if resp := s.Mutate(t.Context(), newPod(t, "new")); !resp.Allowed {
		t.Errorf("Got %+v, want it allowed", resp.Result)
	}
	if len(client.Actions()) != 1 {
		t.Errorf("Got the calls %v, want one", client.Actions())
	}
}

func TestNamespaceLifecycleNeedsWhatItWants(t *testing.T) {
	_, err := lifecyclePlugin().New(admit.Deps{Informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0)}, nil)
	if got, want := errorText(err), "initializing: missing client"; got != want {
		t.Errorf("Got the error %q, want %q", got, want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
