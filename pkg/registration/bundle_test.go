package registration

import (
	"context"
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/pkg/router"
)

// TestReplacedCA covers a CA that was not announced: its Secret was deleted, and the next replica created a new CA.
// Clients must trust both replicas from the first sync of the new replica on. Neither replica may revert the
// changes of the other.
func TestReplacedCA(t *testing.T) {
	c := newCluster(t, ourNamespace())
	early, late := newRegistrar(t, c, nil), newRegistrar(t, c, nil)
	late.bundle.(*bundle).replace("new")
	mustSync(t, early, c)
	for range 5 {
		mustSync(t, late, c)
		if got, want := registeredBundle(t, c), string(cert("new", "ca")); got != want {
			t.Fatalf("Got the bundle %q, want that of both CAs, %q", got, want)
		}
		mustSync(t, early, c)
	}
	if got := len(c.applies()); got != 4 {
		t.Errorf("Applied %d times, want once by each replica for each of the two configurations", got)
	}
	early.bundle.(*bundle).replace("new")
	mustSync(t, early, c)
	if got, want := registeredBundle(t, c), string(cert("new", "ca")); got != want {
		t.Errorf("Got the bundle %q when no replica uses the old CA any more, want %q for a while", got, want)
	}
	late.pass(surplusTime)
	mustSync(t, late, c)
	mustSync(t, early, c)
	if got, want := registeredBundle(t, c), string(cert("new")); got != want {
		t.Errorf("Got the bundle %q in the end, want %q", got, want)
	}
}

// pass moves the clock past the time for which surplus CAs stay registered.
func (r *Registrar) pass(d time.Duration) {
	for c, since := range r.surplus {
		r.surplus[c] = since.Add(-d)
	}
}

func registeredBundle(t *testing.T, c *cluster) string {
	t.Helper()
	return bundleIn(t, c, mutatingKind)
}

func bundleIn(t *testing.T, c *cluster, kind string) string {
	t.Helper()
	webhooks, _, err := unstructured.NestedSlice(c.registered(t, kind, "postern-pods").Object, "webhooks")
	if err != nil || len(webhooks) == 0 {
		t.Fatalf("Got the webhooks %v (%v), want some", webhooks, err)
	}
	text, _, err := unstructured.NestedString(webhooks[0].(map[string]any), "clientConfig", "caBundle")
	if err != nil {
		t.Fatal(err)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestReplicasDuringARotation checks that replicas agree in the end and do not revert each other's changes.
func TestReplicasDuringARotation(t *testing.T) {
	c := newCluster(t, ourNamespace())
	early, late := newRegistrar(t, c, nil), newRegistrar(t, c, nil)
	mustSync(t, early, c)
	mustSync(t, late, c)
	for _, cas := range [][]string{{"old", "ca"}, {"old"}} {
		before := len(c.applies())
		for _, learns := range []*Registrar{early, late} {
			learns.bundle.(*bundle).replace(cas...)
			for range 5 {
				mustSync(t, early, c)
				mustSync(t, late, c)
				early.pass(time.Minute)
				late.pass(time.Minute)
			}
		}
		for range 5 {
			early.pass(time.Minute)
			late.pass(time.Minute)
			mustSync(t, early, c)
			mustSync(t, late, c)
		}
		if got := len(c.applies()) - before; got > 6 {
			t.Errorf("Applied %d times for %v, want no fight", got, cas)
		}
		if got, want := registeredBundle(t, c), string(cert(cas...)); got != want {
			t.Errorf("Got the bundle %q in the end, want %q", got, want)
		}
	}
}

// TestHeldIsWhatCallsUs checks that Held ignores foreign webhooks with the Postern label.
func TestHeldIsWhatCallsUs(t *testing.T) {
	c := newCluster(t, ourNamespace())
	r, replica := newRegistrar(t, c, nil), newRegistrar(t, c, func(d *Deployment, _ *router.AdmissionService) { d.Timeout = 3 * time.Second })
	mustSync(t, r, c)
	theirs := c.registered(t, mutatingKind, "postern-pods").DeepCopy()
	theirs.SetName("theirs")
	webhookField("elsewhere", "clientConfig", "service", "namespace")(theirs)
	webhookField(base64.StdEncoding.EncodeToString(cert("theirs")), "clientConfig", "caBundle")(theirs)
	if err := c.Tracker().Add(theirs); err != nil {
		t.Fatal(err)
	}
	// A replica that registers nothing sees the same bundles.
	replica.fence.turned = true
	for name, r := range map[string]*Registrar{"the one that registers": r, "another": replica} {
		mustSync(t, r, c)
		if got, want := r.bundle.(*bundle).seen(), string(cert("ca")); got != want {
			t.Errorf("By the eyes of %s %q is registered, want %q", name, got, want)
		}
	}
	empty := newRegistrar(t, newCluster(t, ourNamespace()), nil)
	if err := empty.Prepare(t.Context()); err != nil || empty.bundle.(*bundle).seen() != "" {
		t.Errorf("Got %q (%v), want nothing while nothing is registered", empty.bundle.(*bundle).seen(), err)
	}
}

// TestNewCAIsIntroduced covers a replica with an unregistered CA that is starting or may not register.
func TestNewCAIsIntroduced(t *testing.T) {
	for name, start := range map[string]func(*Registrar, *cluster) error{
		"at a start":     func(r *Registrar, _ *cluster) error { return r.Prepare(t.Context()) },
		"as a rival":     func(r *Registrar, c *cluster) error { _, err := r.sync(t.Context(), c.stores(t, r)); return err },
		"while it waits": func(r *Registrar, _ *cluster) error { _ = r.introducing(nobodyThere)(t.Context()); return nil },
		"more than once": func(r *Registrar, _ *cluster) error { _ = r.introduce(t.Context()); return r.introduce(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, ourNamespace())
			registers := newRegistrar(t, c, func(d *Deployment, _ *router.AdmissionService) { d.Timeout = 3 * time.Second })
			mustSync(t, registers, c)
			before := c.registered(t, mutatingKind, "postern-pods")
			comes := newRegistrar(t, c, nil)
			comes.bundle.(*bundle).replace("new")
			comes.fence.turned = true
			if err := start(comes, c); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{mutatingKind, validatingKind} {
				if got, want := bundleIn(t, c, kind), string(cert("ca", "new")); got != want {
					t.Errorf("Got the bundle %q in the %s, want %q", got, kind, want)
				}
			}
			if n := len(c.applies()); n != 2 {
				t.Errorf("Applied %v, want no more than the CA written", c.applies())
			}
			if got, want := comes.bundle.(*bundle).seen(), string(cert("ca", "new")); got != want && name != "as a rival" {
				t.Errorf("It saw %q registered afterwards, want %q", got, want)
			}
			after := c.registered(t, mutatingKind, "postern-pods").DeepCopy()
			webhookField(bundleOf(before), "clientConfig", "caBundle")(after)
			if !covers(after.Object, before.Object) || !covers(before.Object, after.Object) {
				t.Errorf("Got %v, want only the bundle of %v changed", after, before)
			}
		})
	}
}

// TestNoBundleIsIntroducedIntoAnEmptyOne checks that a webhook without a bundle gets none. A bundle would replace
// the system's root CAs, which the API server uses for this webhook.
func TestNoBundleIsIntroducedIntoAnEmptyOne(t *testing.T) {
	c := newCluster(t, ourNamespace())
	registers := newRegistrar(t, c, nil)
	registers.bundle = &bundle{changed: make(chan struct{})}
	mustSync(t, registers, c)
	comes := newRegistrar(t, c, nil)
	if err := comes.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := registeredBundle(t, c); got != "" {
		t.Errorf("Got the bundle %q, want none", got)
	}
}

// TestBundleIsDropped switches to a certificate that the system's root CAs trust.
func TestBundleIsDropped(t *testing.T) {
	c := newCluster(t, ourNamespace())
	mustSync(t, newRegistrar(t, c, nil), c)
	r := newRegistrar(t, c, nil)
	r.bundle = &bundle{changed: make(chan struct{})}
	for range 3 {
		mustSync(t, r, c)
	}
	for _, kind := range []string{mutatingKind, validatingKind} {
		if got := bundleIn(t, c, kind); got != "" {
			t.Errorf("Got the bundle %q in the %s, want none", got, kind)
		}
	}
	if got := patches(c); len(got) != 4 {
		t.Errorf("Wrote %v, want one write of each replica to each", got)
	}
}

func nobodyThere(context.Context) error { return errors.New("nobody there") }
