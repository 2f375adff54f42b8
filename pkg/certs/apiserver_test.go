package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
)

// apiServer is the state that the replicas of a simulation share: a Secret with real resource versions, and the
// bundles of the webhooks. The test decides which events happen.
type apiServer struct {
	client *fake.Clientset
	clock  *clocktesting.FakeClock

	secret  *corev1.Secret
	version int
	// webhooks are the registered bundles. There are none before the first registration. An API server may still use
	// bundles that were replaced less than simLag ago.
	webhooks [][]byte
	before   []version
	// away and readOnly are faults.
	away, readOnly bool
	chains         map[string][]*x509.Certificate
}

// version is a registered bundle, and the time until which it was registered.
type version struct {
	webhooks [][]byte
	until    time.Time
}

func newAPIServer() *apiServer {
	s := &apiServer{client: fake.NewClientset(), chains: map[string][]*x509.Certificate{}, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))}
	s.client.PrependReactor("*", "secrets", s.react)
	return s
}

// react is a Secret with optimistic locking, which the fake does not have.
func (s *apiServer) react(action clienttesting.Action) (bool, runtime.Object, error) {
	secrets := corev1.Resource("secrets")
	if s.away {
		return true, nil, errors.New("connection refused")
	}
	if s.readOnly && action.GetVerb() != "get" {
		return true, nil, apierrors.NewForbidden(secrets, "postern-ca", errors.New("no"))
	}
	switch action := action.(type) {
	case clienttesting.CreateAction: // Updates have the same methods.
		obj := action.GetObject().(*corev1.Secret)
		if action.GetVerb() == "create" && s.secret != nil {
			return true, nil, apierrors.NewAlreadyExists(secrets, "postern-ca")
		}
		if action.GetVerb() == "update" && s.secret == nil {
			return true, nil, apierrors.NewNotFound(secrets, "postern-ca")
		}
		if action.GetVerb() == "update" && s.secret.ResourceVersion != obj.ResourceVersion {
			return true, nil, apierrors.NewConflict(secrets, "postern-ca", errors.New("modified"))
		}
		s.put(obj)
	default:
		if s.secret == nil {
			return true, nil, apierrors.NewNotFound(secrets, "postern-ca")
		}
	}
	return true, s.secret.DeepCopy(), nil
}

func (s *apiServer) put(secret *corev1.Secret) {
	s.version++
	s.secret = secret.DeepCopy()
	s.secret.ResourceVersion = strconv.Itoa(s.version)
}

// replica is one process. Its registrar works like the registrar of the router: it registers the bundle of the
// replica, keeps other registered CAs for a while, and adds the CA of a replica that must not register to the
// registered bundles.
type replica struct {
	*Authority
	name    string
	clock   *clocktesting.FakeClock
	surplus map[string]time.Time
	// registers reports whether the replica may write more than its own CA.
	registers bool
	// wasReady reports whether the replica has ever been ready. A ready replica must stay ready, because it has a
	// trusted certificate.
	wasReady bool
	started  time.Time
}

const (
	simValidity = 7 * 24 * time.Hour
	simSettle   = 30 * time.Second
	simLag      = 20 * time.Second
	simKeep     = 10 * simSettle
	simWebhooks = 3
)

func (s *apiServer) start(t *testing.T, name string, skew time.Duration) *replica {
	t.Helper()
	clock := clocktesting.NewFakeClock(s.clock.Now().Add(skew))
	o := Options{DNSNames: []string{"postern"}, Validity: simValidity, CAValidity: 60 * 24 * time.Hour, Settle: simSettle, Clock: clock}
	o.Registered = func(context.Context) ([][]byte, error) {
		if s.away {
			return nil, errors.New("connection refused")
		}
		return s.webhooks, nil
	}
	a, err := NewAuthority(klog.NewContext(t.Context(), klog.Logger{}), NewSecretStore(s.client, "postern-system", "postern-ca"), o)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{Authority: a, name: name, clock: clock, surplus: map[string]time.Time{}, started: s.clock.Now()}
}

// look is one sync of the registrar, with an up-to-date informer.
func (s *apiServer) look(r *replica) {
	if s.away {
		return
	}
	was := slices.Clone(s.webhooks)
	defer func() {
		if !slices.EqualFunc(was, s.webhooks, bytes.Equal) {
			s.before = append(s.before, version{was, s.clock.Now()})
		}
	}()
	missing := r.Held(s.webhooks)
	switch {
	case r.registers && r.Ready() == nil:
		s.register(r)
	case len(missing) > 0:
		for i := range s.webhooks {
			s.webhooks[i] = union(s.webhooks[i], missing)
		}
	}
	r.Held(s.webhooks)
}

func (s *apiServer) register(r *replica) {
	bundle := r.Bundle()
	if len(s.webhooks) == 0 {
		for range simWebhooks {
			s.webhooks = append(s.webhooks, bundle)
		}
		return
	}
	want, now := bundle, r.clock.Now()
	for _, crt := range certificates(s.webhooks[0]) {
		raw := string(crt.Raw)
		if bytes.Contains(bundle, encode(crt)) {
			delete(r.surplus, raw)
			continue
		}
		if _, known := r.surplus[raw]; !known {
			r.surplus[raw] = now
		}
		if now.Sub(r.surplus[raw]) < simKeep {
			want = union(want, encode(crt))
		}
	}
	for i := range s.webhooks {
		s.webhooks[i] = want
	}
}

func union(bundle, more []byte) []byte {
	out := bytes.Clone(bundle)
	for _, crt := range certificates(more) {
		if !bytes.Contains(bundle, encode(crt)) {
			out = append(out, encode(crt)...)
		}
	}
	return out
}

// verified checks, like the API server, that every registered webhook accepts the certificate of a ready replica.
func (s *apiServer) verified(r *replica) error {
	cert, err := r.GetCertificate(nil)
	if err != nil {
		return err
	}
	all := slices.Clone(s.webhooks)
	for _, v := range s.before {
		// A replica that has just started does not know of earlier bundles.
		if now := s.clock.Now(); now.Sub(v.until) < simLag && now.Sub(r.started) >= simLag {
			all = append(all, v.webhooks...)
		}
	}
	for i, bundle := range all {
		chain, err := s.chain(cert.Leaf, bundle)
		if err != nil {
			return fmt.Errorf("webhook %d: %w", i, err)
		}
		for _, crt := range chain {
			if now := s.clock.Now(); now.Before(crt.NotBefore) || now.After(crt.NotAfter) {
				return fmt.Errorf("webhook %d: %s is not valid at %s", i, crt.Subject, now)
			}
		}
	}
	return nil
}

// chain verifies a certificate, except its validity period. Verifying signatures is slow, so each result is
// cached.
func (s *apiServer) chain(leaf *x509.Certificate, bundle []byte) ([]*x509.Certificate, error) {
	key := string(leaf.Raw) + string(bundle)
	if chain, done := s.chains[key]; done {
		return chain, nil
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "postern", CurrentTime: leaf.NotAfter})
	if err != nil {
		return nil, err
	}
	s.chains[key] = chains[0]
	return chains[0], nil
}
