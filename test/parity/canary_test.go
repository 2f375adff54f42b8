package parity_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/router"
)

const canaryHost = "postern-canary.postern-system.svc"

// balancer leads each connection to the next replica, as a Service does. It is also the AuthenticationInfoResolver and the
// ServiceResolver of the API server's client.
type balancer struct {
	backends []string
	next     atomic.Int64
}

func (b *balancer) backend() string {
	return b.backends[int(b.next.Add(1)-1)%len(b.backends)]
}

func (b *balancer) ClientConfigFor(string) (*rest.Config, error) { return &rest.Config{}, nil }

func (b *balancer) ClientConfigForService(string, string, int) (*rest.Config, error) {
	return &rest.Config{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, b.backend())
	}}, nil
}

func (b *balancer) ResolveEndpoint(string, string, int32) (*url.URL, error) {
	return url.Parse("https://10.0.0.1:443") // The address of the Service, whose replicas only Dial knows.
}

// TestCanaryReachesItsReplica has the API server's webhook client call the canary of one of three replicas behind a Service. It is
// answered if and only if this replica listens, whichever replica gets the first connection: in one attempt if all listen, and in
// some attempt if one of the others has ended.
func TestCanaryReachesItsReplica(t *testing.T) {
	authority, err := certs.NewAuthority(t.Context(), certs.NewDirStore(t.TempDir()), certs.Options{DNSNames: []string{canaryHost}, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, balanced := range []bool{false, true} {
		for _, listen := range [][]bool{{true, true, true}, {false, true, true}, {true, false, true}} {
			listens, all := listen[0], !slices.Contains(listen, false)
			for first := range 3 {
				t.Run(fmt.Sprintf("WebhookRoundTripLoadBalancing %t, listen %v, first %d", balanced, listen, first), func(t *testing.T) {
					featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.WebhookRoundTripLoadBalancing, balanced)
					b := &balancer{}
					b.next.Store(int64(first))
					own := startRouter(t, authority, b, listens)
					for _, other := range listen[1:] {
						startRouter(t, authority, b, other)
					}
					manager, err := webhook.NewClientManager([]schema.GroupVersion{admissionv1.SchemeGroupVersion}, admissionv1.AddToScheme)
					if err != nil {
						t.Fatal(err)
					}
					manager.SetAuthenticationInfoResolver(b)
					manager.SetServiceResolver(b)
					client, err := manager.HookClient(webhook.ClientConfig{Name: "canary", CABundle: authority.Bundle(), Service: &webhook.ClientConfigService{
						Namespace: "postern-system", Name: "postern-canary", Port: 443, Path: own.CanaryPath() + router.ValidatePath,
					}})
					if err != nil {
						t.Fatal(err)
					}
					answered := 0
					for attempt := range 3 {
						answer := &admissionv1.AdmissionReview{}
						err := client.Post().Body(canaryReview()).Do(t.Context()).Into(answer)
						called := answer.Response != nil && answer.Response.Result != nil && answer.Response.Result.Message == router.CanaryAnswer("postern-canary-x")
						if called {
							answered++
						}
						if all && !called || called && !listens || called != (err == nil) {
							t.Fatalf("Attempt %d: called: %t (%v)", attempt, called, err)
						}
						if all && attempt > 0 && b.next.Load() > int64(first)+3 {
							t.Errorf("Attempt %d: %d connections, want the one that has led to the replica kept", attempt, b.next.Load()-int64(first))
						}
					}
					if listens && answered == 0 {
						t.Error("No attempt reached the replica")
					}
				})
			}
		}
	}
}

// startRouter adds a replica to the Service. Nothing listens at its port if listens is false.
func startRouter(t *testing.T, authority *certs.Authority, b *balancer, listens bool) *router.Router {
	t.Helper()
	r, err := router.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.backends = append(b.backends, l.Addr().String())
	if !listens {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	srv := &http.Server{Handler: r, TLSConfig: &tls.Config{GetCertificate: authority.GetCertificate, MinVersion: tls.VersionTLS12}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return r
}

func canaryReview() *admissionv1.AdmissionReview {
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Name: "postern-canary-x", Namespace: "postern-system", Operation: admissionv1.Create,
			Resource: metav1.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
			Object:   runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"postern-canary-x"}}`)},
		},
	}
}
