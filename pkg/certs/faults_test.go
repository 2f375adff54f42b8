package certs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// trial runs replicas and faults in a fixed order.
type trial struct {
	*apiServer

	t        *testing.T
	replicas []*replica
	// passive keeps all replicas from registering.
	passive bool
}

func newTrial(t *testing.T, replicas int) *trial {
	t.Helper()
	x := &trial{apiServer: newAPIServer(), t: t}
	for range replicas {
		x.add(0)
	}
	x.pass(3, 10*time.Second)
	return x
}

func (x *trial) add(skew time.Duration) *replica {
	x.t.Helper()
	r := x.start(x.t, fmt.Sprint(len(x.replicas)), skew)
	x.replicas = append(x.replicas, r)
	return r
}

// pass lets time pass. Clients must accept the certificate of every ready replica all the time.
func (x *trial) pass(steps int, d time.Duration) {
	x.t.Helper()
	ctx := klog.NewContext(x.t.Context(), klog.Logger{})
	for range steps {
		x.clock.Step(d)
		for i, r := range x.replicas {
			r.registers = i == 0 && !x.passive
			r.clock.Step(d)
			x.look(r)
			_ = r.refresh(ctx)
			x.look(r)
		}
		for _, r := range x.replicas {
			ready := r.Ready()
			if err := x.verified(r); err != nil && ready == nil {
				x.t.Fatalf("Replica %s is ready and serves a certificate that clients do not accept: %v", r.name, err)
			}
			if r.wasReady && ready != nil {
				x.t.Fatalf("Replica %s is not ready any more: %v", r.name, ready)
			}
			r.wasReady = r.wasReady || ready == nil
		}
	}
}

func (x *trial) wantReady(when string) {
	x.t.Helper()
	for _, r := range x.replicas {
		if err := r.Ready(); err != nil {
			x.t.Errorf("%s replica %s is not ready: %v", when, r.name, err)
		}
	}
}

func (x *trial) signer(r *replica) string {
	if r.signed == nil {
		return "none"
	}
	return shortName(r.signed.cert)
}

// damage edits the Secret like a user with permission to update it.
func (x *trial) damage(edit func(data map[string][]byte)) {
	secret := x.secret.DeepCopy()
	edit(secret.Data)
	x.put(secret)
}

func otherCA(t *testing.T, now time.Time) map[string][]byte {
	t.Helper()
	pair, err := newKeyPair(now, 60*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	data, err := storedData(newCA(pair))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFaultsOfTheSecret tests the table of faults in docs/operations.md.
func TestFaultsOfTheSecret(t *testing.T) {
	truncate := func(key string) func(*trial) {
		return func(x *trial) {
			x.damage(func(data map[string][]byte) { data[key] = data[key][:len(data[key])/2] })
		}
	}
	for name, test := range map[string]struct {
		fault func(*trial)
		// same and sameAlone report whether the CA is unchanged after the fault, with and without other replicas
		// that hold the CA.
		same, sameAlone bool
		// stuck is the readiness error of a single replica during the fault.
		stuck string
	}{
		"nothing":               {func(*trial) {}, true, true, ""},
		"deleted":               {func(x *trial) { x.secret = nil }, true, false, ""},
		"emptied":               {func(x *trial) { x.damage(func(d map[string][]byte) { clear(d) }) }, true, false, ""},
		"bundle truncated":      {truncate(bundleKey), true, false, ""},
		"certificate truncated": {truncate(certKey), true, false, ""},
		"key truncated":         {truncate(keyKey), true, false, ""},
		"another CA":            {func(x *trial) { x.damage(func(d map[string][]byte) { maps.Copy(d, otherCA(t, x.clock.Now())) }) }, false, false, ""},
		"a CA of the future": {func(x *trial) {
			x.damage(func(d map[string][]byte) { maps.Copy(d, otherCA(t, x.clock.Now().Add(365*24*time.Hour))) })
		}, true, false, ""},
		"read-only":              {func(x *trial) { x.readOnly = true }, true, true, ""},
		"deleted, read-only":     {func(x *trial) { x.secret, x.readOnly = nil, true }, true, true, "making the CA"},
		"truncated, read-only":   {func(x *trial) { truncate(keyKey)(x); x.readOnly = true }, true, true, "it could not be replaced"},
		"the API server is away": {func(x *trial) { x.away = true }, true, true, "connection refused"},
		"another CA, clocks off": {func(x *trial) {
			x.add(5 * time.Minute)
			x.add(-5 * time.Minute)
			x.damage(func(d map[string][]byte) { maps.Copy(d, otherCA(t, x.clock.Now())) })
		}, false, false, ""},
		"deleted, clocks are off": {func(x *trial) { x.add(5 * time.Minute); x.add(-5 * time.Minute); x.secret = nil }, true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTrial(t, 2)
			before := x.signer(x.replicas[0])
			test.fault(x)
			comes := x.add(0)
			x.pass(12, 10*time.Second)
			if test.stuck == "" {
				x.wantReady("With others")
			} else if err := comes.Ready(); err == nil || !strings.Contains(err.Error(), test.stuck) {
				t.Errorf("With others the one that comes says %v, want %q", err, test.stuck)
			}
			// Replicas that hold the CA serve during the whole fault.
			x.pass(30, 24*time.Hour/2)
			for _, r := range x.replicas {
				if err := r.Ready(); err != nil && r != comes {
					t.Errorf("Replica %s is not ready after two weeks: %v", r.name, err)
				}
			}
			if got := x.signer(x.replicas[0]); (got == before) != test.same {
				t.Errorf("The CA %s signs, and before %s did, want the same: %v", got, before, test.same)
			}
		})
		t.Run(name+", alone", func(t *testing.T) {
			x := newTrial(t, 2)
			before := x.signer(x.replicas[0])
			test.fault(x)
			x.replicas = nil
			comes := x.add(0)
			x.pass(12, 10*time.Second)
			if err := comes.Ready(); test.stuck != "" && (err == nil || !strings.Contains(err.Error(), test.stuck)) {
				t.Errorf("Alone it says %v, want %q", err, test.stuck)
			}
			if test.stuck == "" && (x.signer(comes) == before) != test.sameAlone {
				t.Errorf("The CA %s signs, and before %s did, want the same: %v", x.signer(comes), before, test.sameAlone)
			}
			x.readOnly, x.away = false, false
			x.pass(12, 10*time.Second)
			x.wantReady("When all is well again")
		})
	}
}

// TestUninstalledSecretStaysDeleted checks that running replicas do not restore the Secret when no webhook is
// registered.
func TestUninstalledSecretStaysDeleted(t *testing.T) {
	x := newTrial(t, 2)
	for _, r := range x.replicas {
		x.webhooks = nil
		r.Held(nil)
	}
	x.secret = nil
	x.replicas[0].registers = false
	for range 20 {
		x.clock.Step(10 * time.Second)
		for _, r := range x.replicas {
			r.clock.Step(10 * time.Second)
			_ = r.refresh(t.Context())
		}
	}
	if x.secret != nil {
		t.Error("The Secret was written back although nothing is registered")
	}
	x.wantReady("After an uninstall")
}

// TestClockSetBack covers a CA that was made while all clocks, also that of the API server, were ahead.
func TestClockSetBack(t *testing.T) {
	x := newTrial(t, 2)
	x.pass(6, 10*time.Second)
	x.wantReady("At first")
	const back = -30 * 24 * time.Hour
	x.clock.SetTime(x.clock.Now().Add(back))
	for _, r := range x.replicas {
		r.clock.SetTime(r.clock.Now().Add(back))
		if err := r.Ready(); err == nil {
			t.Errorf("Replica %s is ready with a certificate that is not valid yet", r.name)
		}
		r.wasReady = false
	}
	x.pass(20, 10*time.Second)
	x.wantReady("Afterwards")
}

// TestNextCAOfTheFuture covers a rotation that a process began whose clock is a year ahead. The replicas finish it with a CA of
// their own.
func TestNextCAOfTheFuture(t *testing.T) {
	x := newTrial(t, 2)
	x.pass(6, 10*time.Second)
	before := x.signer(x.replicas[0])
	next, err := newKeyPair(x.clock.Now().Add(365*24*time.Hour), 60*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x.replicas[0].store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.replicas[0].store.Update(t.Context(), ca.begin(next)); err != nil {
		t.Fatal(err)
	}
	x.pass(20, 10*time.Second)
	x.wantReady("Afterwards")
	for _, r := range x.replicas {
		if got := x.signer(r); got == before || got == shortName(next.cert) {
			t.Errorf("Replica %s signs with %s, want another CA", r.name, got)
		}
	}
	ca, err = x.replicas[0].store.Load(t.Context())
	if err != nil || ca.publishes(next.cert) || ca.next != nil {
		t.Errorf("The CA of the future is still there: %v, %+v", err, ca.rotation())
	}
}

// TestRenewalOfShortCA covers a CA of an earlier version that is shorter than backdate.
func TestRenewalOfShortCA(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if got, want := renewal(from, from.Add(3*time.Hour)), from.Add(2*time.Hour); !got.Equal(want) {
		t.Errorf("The renewal is at %v, want %v", got, want)
	}
}

// TestExpired covers an installation that did not run for longer than the validity of the CA.
func TestExpired(t *testing.T) {
	x := newTrial(t, 2)
	x.replicas = nil
	x.clock.Step(400 * 24 * time.Hour)
	comes := x.add(0)
	x.add(5 * time.Minute)
	if comes.Ready() == nil {
		t.Error("It is ready before its CA is registered")
	}
	x.pass(6, 10*time.Second)
	x.wantReady("A minute later")
}

// TestEvents rotates the CA, and loses it: one replica reports each.
func TestEvents(t *testing.T) {
	x := newTrial(t, 2)
	var got []string
	for _, r := range x.replicas {
		r.options.Notify = func(eventType, reason, _ string) { got = append(got, eventType+" "+reason) }
	}
	secret := x.secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, rotateAnnotation, "now")
	x.put(secret)
	x.pass(30, 10*time.Second)
	x.secret = nil
	x.pass(6, 10*time.Second)
	if want := []string{"Normal CARotated", "Warning CARepaired"}; !slices.Equal(got, want) {
		t.Errorf("Got the Events %v, want %v", got, want)
	}
}

// TestPhases withholds the new CA from one of three webhooks for an hour.
func TestPhases(t *testing.T) {
	x := newTrial(t, 2)
	old := x.signer(x.replicas[0])
	oldBundle := x.webhooks[2]
	secret := x.secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, rotateAnnotation, "now")
	x.put(secret)
	x.passive = true
	for range 360 {
		x.pass(1, 10*time.Second)
		x.webhooks = [][]byte{x.replicas[0].Bundle(), x.replicas[0].Bundle(), oldBundle}
		if next := x.replicas[0].ca.next; next == nil {
			t.Fatal("It was promoted although a webhook does not hold it")
		}
	}
	keys := x.replicas[0].PathKeys()
	if len(keys) != 2 {
		t.Fatalf("There are %d path keys, want that of the CA that signs and that of the next one", len(keys))
	}
	x.passive = false
	start := x.clock.Now()
	for x.signer(x.replicas[1]) == old {
		x.pass(1, 5*time.Second)
	}
	if got := x.clock.Since(start); got < simSettle || got > 3*simSettle {
		t.Errorf("The new CA signed %v after all held it, want %v", got, simSettle)
	}
	swapped := x.replicas[1].PathKeys()
	if len(swapped) != 2 || string(swapped[0]) != string(keys[1]) || string(swapped[1]) != string(keys[0]) {
		t.Errorf("Got the path keys %x, want %x the other way round", swapped, keys)
	}
	if strings.Contains(string(x.secret.Data[keyKey]), string(keys[0])) || len(x.secret.Data[nextKeyKey]) != 0 {
		t.Error("The old key or the next one is still in the Secret")
	}
	promoted := x.clock.Now()
	for len(x.replicas[0].ca.bundle) > 1 {
		x.pass(1, time.Hour)
	}
	if got := x.clock.Since(promoted); got < simValidity || got > simValidity+3*time.Hour {
		t.Errorf("The old CA left %v after it was replaced, want %v and a little", got, simValidity)
	}
	if got := x.replicas[0].PathKeys(); len(got) != 1 {
		t.Errorf("There are %d path keys in the end, want 1", len(got))
	}
	x.pass(1, simKeep)
	x.pass(1, simKeep)
	if got := len(certificates(x.webhooks[0])); got != 1 {
		t.Errorf("There are %d CAs registered in the end, want 1", got)
	}
}

// TestYear checks that replicas rotate the CA regularly without a request.
func TestYear(t *testing.T) {
	x := newTrial(t, 2)
	signers := map[string]bool{}
	for range 365 {
		x.pass(1, 24*time.Hour)
		x.pass(4, 10*time.Second)
		x.wantReady("All the time")
		signers[x.signer(x.replicas[0])] = true
		if len(x.replicas[0].ca.bundle) > 2 {
			t.Fatalf("The bundle holds %d CAs", len(x.replicas[0].ca.bundle))
		}
	}
	// A CA of 60 days signs for 40.
	if len(signers) < 9 || len(signers) > 11 {
		t.Errorf("There were %d CAs in a year, want one in 40 days", len(signers))
	}
}
