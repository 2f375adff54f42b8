package registration

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
)

func TestProbe(t *testing.T) {
	ready := true
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/readyz" || !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	ours := newBundle()
	ours.data = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	broken := newBundle()
	broken.data = []byte("no PEM")
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: u.Hostname()}}
	}
	for _, c := range []struct {
		name       string
		deployment Deployment
		bundle     *bundle
		ready      bool
		want       string
	}{
		{"a URL", Deployment{URL: s.URL}, ours, true, ""},
		{"a URL that is not ready", Deployment{URL: s.URL}, ours, false, "status 503"},
		{"another CA", Deployment{URL: s.URL}, newBundle(), true, "certificate signed by unknown authority"},
		{"a bundle that is none", Deployment{URL: s.URL}, broken, true, "the CA bundle holds no certificate"},
		// The certificate of httptest is for 127.0.0.1 and example.com, so it is rejected for the name of a
		// Service.
		{"a service", Deployment{Namespace: "ns", Service: "web", Port: int32(port)}, ours, true, "not web.ns.svc"},
		{"no service", Deployment{Namespace: "ns", Service: "none", Port: int32(port)}, ours, true, "reading service ns/none"},
	} {
		ready = c.ready
		err := c.deployment.Probe(fake.NewClientset(service("web")), c.bundle, clock.RealClock{})(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

func TestTarget(t *testing.T) {
	for name, c := range map[string]struct {
		spec corev1.ServiceSpec
		want string
	}{
		"an IP":         {corev1.ServiceSpec{ClusterIP: "10.0.0.1"}, "https://10.0.0.1:443"},
		"an IPv6":       {corev1.ServiceSpec{ClusterIP: "fd00::1"}, "https://[fd00::1]:443"},
		"headless":      {corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}, "https://postern.ns.svc:443"},
		"external name": {corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "host"}, "https://host:443"},
	} {
		client := fake.NewClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "postern"}, Spec: c.spec})
		got, serverName, err := Deployment{Namespace: "ns", Service: "postern", Port: 443}.target(t.Context(), client)
		if err != nil || got != c.want || serverName != "postern.ns.svc" {
			t.Errorf("%s: got %s as %s (%v), want %s as postern.ns.svc", name, got, serverName, err, c.want)
		}
	}
	got, serverName, err := Deployment{URL: "https://[fd00::1]:8443/"}.target(t.Context(), nil)
	if err != nil || got != "https://[fd00::1]:8443" || serverName != "fd00::1" {
		t.Errorf("Got %s as %s (%v), want the host of the URL", got, serverName, err)
	}
}
