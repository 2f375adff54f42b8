package registration

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/pkg/router"
)

// TestCanary is about the answers that an API server can give to the canary request.
func TestCanary(t *testing.T) {
	denied := func(message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}}
	}
	for _, tt := range []struct {
		name   string
		answer func(webhook, lease string) error
		want   string
	}{
		{"Postern was called", func(webhook, lease string) error {
			return denied(`admission webhook "` + webhook + `" denied the request: ` + router.CanaryAnswer(lease))
		}, ""},
		{"somebody else answers", func(webhook, _ string) error {
			return denied(`admission webhook "` + webhook + `" denied the request: ` + router.CanaryAnswer("x"))
		}, "the API server cannot call Postern"},
		{"no route", func(webhook, _ string) error {
			return apierrors.NewInternalError(errors.New(`failed calling webhook "` + webhook + `": failed to call webhook: dial tcp 10.0.0.1:443: i/o timeout`))
		}, "the API server cannot call Postern"},
		{"not observed yet", func(_, _ string) error { return nil }, "has not observed the canary webhook yet"},
		{"a policy of somebody else", func(_, _ string) error { return denied(`admission webhook "other.example.com" denied the request: no`) }, ""},
		{"no permission", func(_, _ string) error {
			return denied(`leases.coordination.k8s.io is forbidden: User "x" cannot create resource "leases"`)
		}, "asking the API server to call Postern"},
		{"no API server", func(_, _ string) error { return errors.New("connection refused") }, "asking the API server to call Postern"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			r := newRegistrar(t, c, nil)
			asked := 0
			c.PrependReactor("create", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				create := action.(clienttesting.CreateActionImpl)
				lease := create.GetObject().(*unstructured.Unstructured)
				config := c.registered(t, validatingKind, canaryName)
				checkCanary(t, config, create, lease)
				return true, lease, tt.answer(lease.GetLabels()[canaryLabel]+"."+canaryWebhook, lease.GetName())
			})
			err := r.Canary()(t.Context())
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Got the error %v, want one with %q", err, tt.want)
			}
			if asked != 1 {
				t.Errorf("Asked %d times, want once", asked)
			}
			if left := c.registered(t, validatingKind, canaryName); (left != nil) != (tt.want != "") {
				t.Errorf("Got the canary %v, want it removed once it was called", left)
			}
		})
	}
}

// checkCanary checks that the canary matches the dry-run request and nothing else.
func checkCanary(t *testing.T, config *unstructured.Unstructured, create clienttesting.CreateActionImpl, lease *unstructured.Unstructured) {
	t.Helper()
	if config == nil {
		t.Fatal("The canary is not registered when the request is made")
	}
	if got := create.GetCreateOptions().DryRun; len(got) != 1 || got[0] != metav1.DryRunAll {
		t.Errorf("Got the dry run %v, want that nothing is stored", got)
	}
	w := asMap(webhookList(config.Object)[0])
	name, _ := w["name"].(string)
	objects, _, _ := unstructured.NestedStringMap(w, "objectSelector", "matchLabels")
	namespaces, _, _ := unstructured.NestedStringMap(w, "namespaceSelector", "matchLabels")
	if nonce := objects[canaryLabel]; len(nonce) < 20 || lease.GetLabels()[canaryLabel] != nonce || len(objects) != 1 || name != nonce+".canary.postern.dev" {
		t.Errorf("Got the selector %v, the labels %v and the webhook %s, want a value that nobody else has", objects, lease.GetLabels(), name)
	}
	if namespaces["kubernetes.io/metadata.name"] != "postern-system" || create.GetNamespace() != "postern-system" || w["failurePolicy"] != "Fail" {
		t.Errorf("Got %v, want a webhook that fails closed, for our namespace", w)
	}
}

// TestCanariesShareAConfiguration checks that two replicas that start at the same time do not disturb each other, and
// that a replica whose canary another replica removed applies it again.
func TestCanariesShareAConfiguration(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	observed := false
	c.PrependReactor("create", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lease := action.(clienttesting.CreateActionImpl).GetObject().(*unstructured.Unstructured)
		if !observed {
			return true, lease, nil
		}
		return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Message: router.CanaryAnswer(lease.GetName())}}
	})
	one, other := r.Canary(), r.Canary()
	if errors.Join(one(t.Context()), other(t.Context())) == nil {
		t.Error("Got no error before the API server has observed the canaries")
	}
	if got := len(webhookList(c.registered(t, validatingKind, canaryName).Object)); got != 2 {
		t.Errorf("Got %d webhooks, want one for each replica", got)
	}
	observed = true
	for _, call := range []func(context.Context) error{one, other} {
		if err := call(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left := c.registered(t, validatingKind, canaryName); left != nil {
		t.Errorf("Got the canary %v, want it removed", left)
	}
}

func TestCanaryIsNotAClient(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r := newRegistrar(t, c, nil)
	c.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	if err := r.Canary()(t.Context()); err == nil {
		t.Fatal("Got no error")
	}
	r.bundle.(*bundle).replace("new")
	mustSync(t, r, c)
	if got := r.bundle.(*bundle).seen(); got != "" {
		t.Errorf("Got the bundle %q of the canary, want none before anything else is registered", got)
	}
}

// TestRouterServesTheCanary checks the path that the canary registers.
func TestRouterServesTheCanary(t *testing.T) {
	r, err := router.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","name":"postern-canary-x","operation":"CREATE","object":{}}}`
	req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, router.CanaryPath+router.ValidatePath, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	r.ServeHTTP(w, req)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"allowed":false`) || !strings.Contains(w.Body.String(), router.CanaryAnswer("postern-canary-x")) {
		t.Errorf("Got %d %s, want the answer to the canary", w.Code, w.Body)
	}
}
