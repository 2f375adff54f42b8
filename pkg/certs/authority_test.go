package certs_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/postern-dev/postern/pkg/certs"
)

// flaky is a store that can fail. It counts its reads.
type flaky struct {
	certs.Store
	away     atomic.Bool
	readOnly atomic.Bool
	loads    atomic.Int32
}

func (f *flaky) Load(ctx context.Context) (*certs.CA, error) {
	defer f.loads.Add(1)
	if f.away.Load() {
		return nil, errors.New("connection refused")
	}
	return f.Store.Load(ctx)
}

func (f *flaky) Update(ctx context.Context, ca *certs.CA) (*certs.CA, error) {
	if f.readOnly.Load() {
		return nil, errors.New("forbidden")
	}
	return f.Store.Update(ctx, ca)
}

// step advances the clock and waits until the authority has read the store.
func step(t *testing.T, c *clocktesting.FakeClock, store *flaky, d time.Duration) {
	t.Helper()
	loads := store.loads.Load()
	c.Step(d)
	eventually(t, "the store is read", func() bool { return store.loads.Load() > loads })
}

func TestCertificatesAreAsDesigned(t *testing.T) {
	clock := newClock()
	a := newAuthority(t, secretStore(fake.NewClientset()), options(clock))
	ca, crt := parse(t, a.Bundle())[0], leaf(t, a)

	if !ca.IsCA || !ca.BasicConstraintsValid || ca.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign {
		t.Errorf("The CA has constraints %v and usage %v", ca.IsCA, ca.KeyUsage)
	}
	if got, want := ca.Subject.String(), "CN=postern-ca"; got != want {
		t.Errorf("The CA is %q, want %q", got, want)
	}
	for name, c := range map[string]*x509.Certificate{"CA": ca, "leaf": crt} {
		if key, ok := c.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
			t.Errorf("The %s has a key of type %T, want ECDSA P-256", name, c.PublicKey)
		}
		if bits := c.SerialNumber.BitLen(); bits < 64 || bits > 128 {
			t.Errorf("The %s has a serial number of %d bits", name, bits)
		}
		if got, want := c.NotBefore, clock.Now().Add(-day); !got.Equal(want) {
			t.Errorf("The %s is valid from %s, want %s", name, got, want)
		}
	}
	if got, want := ca.NotAfter, clock.Now().Add(365*day); !got.Equal(want) {
		t.Errorf("The CA ends at %s, want %s", got, want)
	}
	if got, want := a.NotAfter(), clock.Now().Add(7*day); !got.Equal(want) || !crt.NotAfter.Equal(want) {
		t.Errorf("The leaf ends at %s, want %s", got, want)
	}
	if diff := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, crt.ExtKeyUsage); diff != "" {
		t.Errorf("Extended key usage (-want +got):\n%s", diff)
	}
}

func TestHandshakeAgainstTheBundle(t *testing.T) {
	clock := newClock()
	a := newAuthority(t, certs.NewDirStore(t.TempDir()), options(clock))
	other := newAuthority(t, certs.NewDirStore(t.TempDir()), options(clock))
	address := listen(t, a)
	for _, name := range []string{serverName, "127.0.0.1"} {
		if err := shake(t.Context(), address, name, a.Bundle(), clock.Now()); err != nil {
			t.Errorf("Handshake with %s: %v", name, err)
		}
	}
	if err := shake(t.Context(), address, "example.com", a.Bundle(), clock.Now()); err == nil {
		t.Error("A name that is not in the certificate was accepted")
	}
	if err := shake(t.Context(), address, serverName, other.Bundle(), clock.Now()); err == nil {
		t.Error("A CA that did not sign was accepted")
	}
}

// shakeOn repeats handshakes until stop is called. Every handshake must succeed.
func shakeOn(t *testing.T, shake func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	failure := make(chan error, 1)
	go func() {
		defer close(failure)
		for ctx.Err() == nil {
			if err := shake(ctx); err != nil && ctx.Err() == nil {
				failure <- err
				return
			}
		}
	}()
	return func() {
		cancel()
		if err := <-failure; err != nil {
			t.Errorf("Handshake during the renewal: %v", err)
		}
	}
}

func TestRenewalAtTwoThirdsWhileHandshakesGoOn(t *testing.T) {
	clock := newClock()
	store := &flaky{Store: secretStore(fake.NewClientset())}
	a := newAuthority(t, store, options(clock))
	first, changed := leaf(t, a), a.Changed()
	address := listen(t, a)
	logs := run(t, a, clock)

	stop := shakeOn(t, func(ctx context.Context) error {
		return shake(ctx, address, serverName, a.Bundle(), clock.Now())
	})

	step(t, clock, store, 7*day*2/3-2*time.Minute)
	step(t, clock, store, time.Minute) // The tick before has now been dealt with.
	if got := leaf(t, a); !got.Equal(first) {
		t.Error("The certificate was renewed before two thirds of its life")
	}
	clock.Step(time.Minute)
	eventually(t, "the certificate is renewed", func() bool { return !leaf(t, a).Equal(first) })
	if got, want := a.NotAfter(), clock.Now().Add(7*day); !got.Equal(want) {
		t.Errorf("The renewed certificate ends at %s, want %s", got, want)
	}
	eventually(t, "the reason is logged", func() bool { return logs.count("two thirds") == 1 })
	stop()
	select {
	case <-changed:
		t.Error("A change of the bundle was announced, but only the certificate is new")
	default:
	}
}

func TestLeafNeverOutlivesTheCA(t *testing.T) {
	clock := newClock()
	o := options(clock)
	o.CAValidity = 10 * day
	store := &flaky{Store: secretStore(fake.NewClientset())}
	store.readOnly.Store(true) // Otherwise the authority would rotate the CA.
	a := newAuthority(t, store, o)
	end := parse(t, a.Bundle())[0].NotAfter
	logs := run(t, a, clock)

	clock.Step(5 * day)
	eventually(t, "the certificate is renewed", func() bool { return a.NotAfter().Equal(end) })
	last := leaf(t, a)
	step(t, clock, store, 4*day)
	step(t, clock, store, time.Minute) // The tick before has now been dealt with.
	if !leaf(t, a).Equal(last) {
		t.Error("A certificate that ends with the CA was renewed to no end")
	}
	clock.Step(day + time.Second)
	eventually(t, "the outage is logged", func() bool { return logs.count("cannot be refreshed") == 1 })
	if a.Ready() == nil {
		t.Error("Ready is nil after the CA expired")
	}
	store.readOnly.Store(false)
	clock.Step(time.Minute)
	eventually(t, "another CA signs", func() bool { return a.Ready() == nil })
}

func TestStoreAwayKeepsServing(t *testing.T) {
	clock := newClock()
	store := &flaky{Store: secretStore(fake.NewClientset())}
	a := newAuthority(t, store, options(clock))
	bundle := a.Bundle()
	logs := run(t, a, clock)
	store.away.Store(true)

	for range 30 {
		step(t, clock, store, day)
		eventually(t, "the certificate is valid", func() bool { return a.Ready() == nil })
	}
	if diff := cmp.Diff(string(bundle), string(a.Bundle())); diff != "" {
		t.Errorf("Bundle after a month (-want +got):\n%s", diff)
	}
	store.away.Store(false)
	clock.Step(time.Minute)
	wantOneOutage(t, logs)
}

func TestClockSetBackRenews(t *testing.T) {
	clock := newClock()
	store := certs.NewDirStore(t.TempDir())
	bundle := newAuthority(t, store, options(clock)).Bundle()
	clock.Step(5 * day)
	a := newAuthority(t, store, options(clock))
	clock.SetTime(clock.Now().Add(-2 * day))
	if a.Ready() == nil {
		t.Error("Ready is nil although the certificate is not valid yet")
	}
	run(t, a, clock)
	clock.Step(time.Minute)
	eventually(t, "the certificate is valid", func() bool { return a.Ready() == nil })
	if diff := cmp.Diff(string(bundle), string(a.Bundle())); diff != "" {
		t.Errorf("Bundle (-want +got):\n%s", diff)
	}
}

// TestCAOfTheFuture covers a folder whose CA was made while the clock was ahead: a process that starts uses another CA at once.
func TestCAOfTheFuture(t *testing.T) {
	clock := newClock()
	store := certs.NewDirStore(t.TempDir())
	before := newAuthority(t, store, options(clock)).Bundle()
	clock.SetTime(clock.Now().Add(-2 * day))
	a := newAuthority(t, store, options(clock))
	if err := errors.Join(a.Problem(), a.Ready()); err != nil {
		t.Errorf("It is not ready: %v", err)
	}
	if string(a.Bundle()) == string(before) {
		t.Error("It uses the CA that is not valid yet")
	}
}

// TestExpiredCAThatCannotBeReplaced covers a process that starts with an expired CA and a store that refuses another one.
func TestExpiredCAThatCannotBeReplaced(t *testing.T) {
	clock := newClock()
	store := &flaky{Store: certs.NewDirStore(t.TempDir())}
	newAuthority(t, store, options(clock))
	clock.Step(400 * day)
	store.readOnly.Store(true)
	a := newAuthority(t, store, options(clock))
	if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("Ready is %v, want the reason", err)
	}
	run(t, a, clock)
	store.readOnly.Store(false)
	clock.Step(time.Minute)
	eventually(t, "it is ready", func() bool { return a.Ready() == nil })
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]certs.Options{
		"no names":             {},
		"negative validity":    {DNSNames: []string{serverName}, Validity: -day},
		"negative CA validity": {DNSNames: []string{serverName}, CAValidity: -day},
		"negative settling":    {DNSNames: []string{serverName}, Settle: -day},
	} {
		if _, err := certs.NewAuthority(logging(t), certs.NewDirStore(t.TempDir()), o); err == nil {
			t.Errorf("Options with %s were accepted", name)
		}
	}
}
