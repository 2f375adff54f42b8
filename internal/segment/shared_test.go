package segment_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/postern-dev/postern/internal/segment"
)

const namespace = "postern-system"

// trial is a cluster with replicas that share a key.
type trial struct {
	client *fake.Clientset
	logger klog.Logger
	// registered are the segments that are registered now, or broken is the error of a call that asks for them.
	mu         sync.Mutex
	registered []string
	broken     error
	events     []string
}

// register makes segments the registered ones, or the call that asks for them fail.
func (x *trial) register(err error, segments ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.registered, x.broken = segments, err
}

func newTrial(t *testing.T) *trial {
	t.Helper()
	return &trial{client: fake.NewClientset(), logger: ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))}
}

// context returns a context with the log.
func (x *trial) context(t *testing.T) context.Context {
	t.Helper()
	return klog.NewContext(t.Context(), x.logger)
}

// log returns what was logged.
func (x *trial) log() string { return x.logger.GetSink().(ktesting.Underlier).GetBuffer().String() }

// start starts a replica that finds segments registered, and runs it until the test ends.
func (x *trial) start(t *testing.T, registered ...string) (*segment.Set, *segment.Shared) {
	t.Helper()
	var shared *segment.Shared
	set := segment.New(func() [][]byte { return shared.Keys() })
	shared = segment.Share(x.client.CoreV1().Secrets(namespace), namespace, set, func(context.Context) ([]string, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.registered, x.broken
	})
	shared.Notify = func(eventType, reason, message string) { x.events = append(x.events, eventType+" "+reason+" "+message) }
	if err := shared.Start(x.context(t)); err != nil {
		t.Fatalf("Starting: %v", err)
	}
	x.register(nil, registered...)
	set.Registered(registered)
	ctx, cancel := context.WithCancel(x.context(t))
	done := make(chan error, 1)
	go func() { done <- shared.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Running: %v", err)
		}
	})
	synctest.Wait()
	return set, shared
}

func (x *trial) put(t *testing.T, key string) {
	t.Helper()
	x.remove(t)
	if _, err := x.client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: segment.SecretName}, Data: map[string][]byte{"key": []byte(key)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (x *trial) remove(t *testing.T) {
	t.Helper()
	if err := x.client.CoreV1().Secrets(namespace).Delete(t.Context(), segment.SecretName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// stored returns the key in the Secret, or "".
func (x *trial) stored(t *testing.T) string {
	t.Helper()
	s, err := x.client.CoreV1().Secrets(namespace).Get(t.Context(), segment.SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(s.Data["key"])
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var (
	oneKey, twoKey = strings.Repeat("1", 32), strings.Repeat("2", 32)
	one, two       = segment.Of([]byte(oneKey)), segment.Of([]byte(twoKey))
)

// TestReplicasShareAKey checks that of two replicas the first creates the key, with the permissions of the role.
func TestReplicasShareAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t)
		first, _ := x.start(t)
		second, _ := x.start(t)
		if key := x.stored(t); len(key) != 32 {
			t.Fatalf("Got the key %q, want 32 bytes", key)
		}
		made := segment.Of([]byte(x.stored(t)))
		check(t, "Both accept its segment", second, []string{made}, made)
		check(t, "Both accept its segment", first, []string{made}, made)
		// Two replicas that create it at the same time.
		x.remove(t)
		hidden := true
		x.client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			if hidden {
				hidden = false
				return true, nil, apierrors.NewNotFound(corev1.Resource("secrets"), segment.SecretName)
			}
			return false, nil, nil
		})
		if err := x.client.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: segment.SecretName}, Data: map[string][]byte{"key": []byte(oneKey)}}); err != nil {
			t.Fatal(err)
		}
		third, _ := x.start(t)
		check(t, "The one that was slower takes the key of the other", third, []string{one}, one)
		pass(time.Minute)
		for _, a := range x.client.Actions() {
			if !slices.Contains([]string{"get", "create", "delete"}, a.GetVerb()) || a.GetResource().Resource != "secrets" || a.GetNamespace() != namespace {
				t.Errorf("Got %s of %s, want to get and create Secrets only", a.GetVerb(), a.GetResource().Resource)
			}
		}
	})
}

// TestLostKey covers a Secret that somebody deletes while its segment is registered, and while it is not.
func TestLostKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t)
		x.put(t, oneKey)
		s, _ := x.start(t, one)
		x.remove(t)
		x.register(errors.New("away"))
		pass(10 * time.Second)
		if key := x.stored(t); key != "" || !strings.Contains(x.log(), "away") {
			t.Errorf("Got %q and the log %s, want none while it is not known whether the segment is registered", key, x.log())
		}
		x.register(nil, one)
		pass(10 * time.Second)
		if key := x.stored(t); key != oneKey {
			t.Errorf("Got %q, want the key written again", key)
		}
		if want := []string{"Warning PathKeyRestored The Secret postern-path was missing, and was written again"}; !slices.Equal(x.events, want) {
			t.Errorf("Got the Events %q, want %q", x.events, want)
		}
		if log := x.log(); strings.Count(log, "Wrote the key of the paths again") != 1 || strings.Contains(log, oneKey) || strings.Contains(log, one) {
			t.Errorf("Got the log %s, want one line without the key", log)
		}
		check(t, "Nothing else changes", s, []string{one}, one)
		x.register(nil) // The cache still has it.
		x.remove(t)
		pass(time.Minute)
		if key := x.stored(t); key != "" {
			t.Errorf("Got %q after an uninstallation, want none", key)
		}
	})
}

// TestLostKeyCannotBeWritten covers a Secret that cannot be written again, which is logged once.
func TestLostKeyCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t)
		x.put(t, oneKey)
		s, _ := x.start(t, one)
		var refused atomic.Bool
		refused.Store(true)
		x.client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refused.Load(), nil, apierrors.NewForbidden(corev1.Resource("secrets"), segment.SecretName, errors.New("no"))
		})
		x.remove(t)
		pass(time.Minute)
		check(t, "It goes on", s, []string{one}, one)
		if log := x.log(); strings.Count(log, "cannot be read or written") != 1 || !strings.Contains(log, "writing secret postern-system/postern-path again") {
			t.Errorf("Got the log %s, want one line about it", log)
		}
		refused.Store(false)
		pass(10 * time.Second)
		if key := x.stored(t); key != oneKey || !strings.Contains(x.log(), "can be read and written again") {
			t.Errorf("Got %q and the log %s, want the key written and a line about it", key, x.log())
		}
	})
}

// TestAnotherKey covers a key that somebody writes while replicas run: they accept both, and all know the new one before it is
// registered.
func TestAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t)
		x.put(t, oneKey)
		s, _ := x.start(t, one)
		pass(time.Hour)
		changed := s.Changed()
		x.put(t, twoKey)
		pass(10 * time.Second)
		check(t, "Both are accepted", s, []string{one, two}, one, two)
		pass(29 * time.Second)
		check(t, "The old one is registered while others may not know the new one", s, []string{one, two}, one, two)
		select {
		case <-changed:
			t.Error("Another segment is announced too early")
		default:
		}
		pass(11 * time.Second)
		check(t, "Then the new one is registered", s, []string{one, two}, two)
		select {
		case <-changed:
		default:
			t.Error("The new segment is not announced")
		}
		s.Registered([]string{two})
		check(t, "Both are accepted for some time", s, []string{one, two}, two)
		pass(10 * time.Minute)
		check(t, "Then only the new one", s, []string{two}, two)
		if log := x.log(); strings.Count(log, "another key") != 1 || strings.Contains(log, twoKey) || strings.Contains(log, two) {
			t.Errorf("Got the log %s, want one line about it", log)
		}
	})
}

// TestAnotherKeyIsRegisteredByOthers covers a replica that learns by the registration that the others know the key.
func TestAnotherKeyIsRegisteredByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t)
		x.put(t, oneKey)
		s, _ := x.start(t, one)
		x.put(t, twoKey)
		pass(10 * time.Second)
		s.Saw([]string{two})
		check(t, "The registered one is its own", s, []string{one, two}, two, one)
	})
}

// TestStartWithAnotherKey covers a replica that starts while a segment is registered whose key it does not know.
func TestStartWithAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t)
		x.put(t, twoKey)
		s, _ := x.start(t, one)
		check(t, "The registered one stays registered", s, []string{one, two}, one, two)
		x.remove(t)
		pass(25 * time.Second)
		if key := x.stored(t); key != "" {
			t.Errorf("Got %q, want nothing written: the registered segment is not of its key", key)
		}
		pass(10 * time.Second)
		check(t, "Then its own is registered", s, []string{one, two}, two, one)
		x.register(nil, two)
		pass(10 * time.Second)
		if key := x.stored(t); key != twoKey {
			t.Errorf("Got %q, want the key written again", key)
		}
	})
}

// TestKeyOnFirstInstall covers a replica that finds nothing registered.
func TestKeyOnFirstInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t)
		x.put(t, oneKey)
		s, _ := x.start(t)
		check(t, "Its own is registered at once", s, []string{one}, one)
		x.put(t, twoKey)
		pass(10 * time.Second)
		check(t, "Another replica may register what both have read before", s, []string{one, two}, two)
	})
}

// TestBadKeys covers what a replica cannot use, when it starts and while it runs.
func TestBadKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t)
		x.put(t, oneKey)
		s, shared := x.start(t, one)
		x.put(t, oneKey[1:])
		want := "secret postern-system/postern-path: key has less than 32 bytes: delete the Secret"
		if err := shared.Start(x.context(t)); err == nil || err.Error() != want {
			t.Errorf("Got %v at the start, want %s", err, want)
		}
		pass(time.Minute)
		check(t, "It goes on with its key", s, []string{one}, one)
		if log := x.log(); strings.Count(log, want) != 1 || strings.Contains(log, oneKey[1:]) {
			t.Errorf("Got the log %s, want one line about it", log)
		}
		x.client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("away"))
		})
		if err := shared.Start(x.context(t)); err == nil || !strings.Contains(err.Error(), "away") {
			t.Errorf("Got %v at the start, want the error of the API server", err)
		}
		pass(time.Minute)
		check(t, "It goes on with its key", s, []string{one}, one)
	})
}

// TestNoNamespace covers a process outside of a cluster, whose namespace does not exist.
func TestNoNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrial(t)
		x.client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
		})
		s, _ := x.start(t)
		check(t, "It has no segment", s, []string{""}, "")
		if !strings.Contains(x.log(), "can be guessed") {
			t.Errorf("Got the log %s, want a line about it", x.log())
		}
		s.Registered([]string{""})
		pass(time.Minute)
		check(t, "It has none as long as nobody writes a key", s, []string{""}, "")
		if err := x.client.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: segment.SecretName}, Data: map[string][]byte{"key": []byte(oneKey)}}); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		check(t, "Another replica has written a key", s, []string{"", one}, "", one)
		pass(40 * time.Second)
		check(t, "It registers the segment when others had time to read the key", s, []string{"", one}, one, "")
	})
}
