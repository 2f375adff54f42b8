package rollout

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const ns = "postern-system"

// member returns a replica that has joined and registers.
func member(t *testing.T, client *fake.Clientset, name, digest string, serves ...string) *Replicas {
	t.Helper()
	r := New(Options{Client: client, Namespace: ns, Name: name, Digest: digest, Serves: append(serves, "/pods")})
	if err := errors.Join(r.Join(t.Context()), r.Register(t.Context())); err != nil {
		t.Fatalf("Joining: %v", err)
	}
	return r
}

// tell passes the Leases that exist to every replica, as the watch does. Without renewals, no replica ages.
func tell(t *testing.T, client *fake.Clientset, replicas ...*Replicas) {
	t.Helper()
	list, err := client.CoordinationV1().Leases(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range replicas {
		for i := range list.Items {
			r.observe(&list.Items[i])
		}
	}
}

func renew(t *testing.T, replicas ...*Replicas) {
	t.Helper()
	for _, r := range replicas {
		time.Sleep(time.Millisecond) // The renewTime has a resolution of a microsecond.
		if err := r.renew(t.Context()); err != nil {
			t.Fatalf("Renewing: %v", err)
		}
	}
}

func leads(t *testing.T, r *Replicas, want bool) {
	t.Helper()
	if got := r.View(); got.Leads != want {
		t.Errorf("%s: got the view %+v, want it to lead: %v", r.Name(), got, want)
	}
}

func TestLaterDigestLeads(t *testing.T) {
	client := fake.NewClientset()
	old, twin := member(t, client, "old", "a"), member(t, client, "twin", "a")
	tell(t, client, old, twin)
	leads(t, old, true)
	leads(t, twin, true)
	later := member(t, client, "later", "0")
	tell(t, client, old, twin, later)
	leads(t, old, false)
	leads(t, twin, false)
	leads(t, later, true)
	if got, none := old.View().Later, later.View().Later; !slices.Equal(got, []string{"0"}) || len(none) > 0 {
		t.Errorf("Got the later digests %q and %q, want that of the one that started later", got, none)
	}
	if got := old.View(); got.Leader != "later" || !slices.Equal(got.Living, []string{"later", "twin"}) {
		t.Errorf("Got the view %+v", got)
	}
	// The container of an old replica restarts in the middle of the rollout. It keeps its rank.
	old = member(t, client, "old", "a")
	another := member(t, client, "another", "a")
	tell(t, client, old, another, later)
	leads(t, old, false)
	leads(t, another, false)
	leads(t, later, true)
	// The container restarts with another configuration.
	old = member(t, client, "old", "b")
	tell(t, client, old, later)
	leads(t, old, true)
	leads(t, later, false)
}

func TestReplicaThatOnlyJoinedDoesNotLead(t *testing.T) {
	client := fake.NewClientset()
	old := member(t, client, "old", "a", "/new")
	stuck := New(Options{Client: client, Namespace: ns, Name: "stuck", Digest: "b", Serves: []string{"/pods"}})
	if err := stuck.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	tell(t, client, old, stuck)
	leads(t, old, true)
	if v := old.View(); !slices.Equal(v.Higher, []string{"stuck"}) {
		t.Errorf("Got the higher replicas %v, want the one that may be called later", v.Higher)
	}
	if v := old.View(); v.AllServe("/new") || !v.AllServe("/pods") {
		t.Errorf("Got the paths %v, want those that each living replica serves", v.Serves)
	}
}

// TestPluginsThatNotAllRun checks which plugins the other replicas lack, while a rollout adds a plugin and removes
// another one. A replica of a version that did not tell counts for neither.
func TestPluginsThatNotAllRun(t *testing.T) {
	client := fake.NewClientset()
	replica := func(name, digest string, plugins ...string) *Replicas {
		r := New(Options{Client: client, Namespace: ns, Name: name, Digest: digest, Serves: []string{"/pods"}, Runs: plugins})
		if err := r.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := replica("before", "a", "Kept", "Removed")
	after := replica("after", "b", "Added", "Kept")
	tell(t, client, before, after)
	for r, want := range map[*Replicas]string{before: "Removed", after: "Added"} {
		if v := r.View(); !slices.Equal(v.Lacking, []string{want}) || v.AllRun(want) || !v.AllRun("Kept") {
			t.Errorf("Replica %s says that others lack %v, want %s", r.Name(), v.Lacking, want)
		}
	}
	leases := client.CoordinationV1().Leases(ns)
	if err := leases.Delete(t.Context(), "before", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	silent, err := leases.Get(t.Context(), "after", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	silent.Name = "silent"
	delete(silent.Annotations, runsAnnotation)
	if _, err := leases.Create(t.Context(), silent, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	late := replica("late", "b", "Added", "Kept")
	tell(t, client, late)
	if v := late.View(); len(v.Lacking) != 0 || len(v.Living) != 2 {
		t.Errorf("Got %+v, want two living replicas that lack nothing", v)
	}
}

// deployed makes a pod of a ReplicaSet with the revision.
func deployed(t *testing.T, client *fake.Clientset, pod, set string, revision int) {
	t.Helper()
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: set, Annotations: map[string]string{revisionOfReplicaSet: strconv.Itoa(revision)}}}
	err := client.Tracker().Update(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, rs, ns)
	if apierrors.IsNotFound(err) {
		err = client.Tracker().Add(rs)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pod, UID: "uid-of-pod", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, Controller: new(true)}}}}
	if err := client.Tracker().Add(p); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func inPod(t *testing.T, client *fake.Clientset, pod, digest string) *Replicas {
	t.Helper()
	r := New(Options{Client: client, Namespace: ns, Name: pod, Pod: pod, Digest: digest, Serves: []string{"/pods"}})
	if err := errors.Join(r.Locate(t.Context()), r.Join(t.Context()), r.Register(t.Context())); err != nil {
		t.Fatalf("Joining: %v", err)
	}
	return r
}

func TestRevisionDecides(t *testing.T) {
	client := fake.NewClientset()
	deployed(t, client, "new-1", "new", 2)
	deployed(t, client, "old-1", "old", 1)
	// The old replica starts last, as it does if its container restarts in the rollout.
	newer, older := inPod(t, client, "new-1", "b"), inPod(t, client, "old-1", "a")
	tell(t, client, newer, older)
	leads(t, newer, true)
	leads(t, older, false)
	lease, err := client.CoordinationV1().Leases(ns).Get(t.Context(), "new-1", metav1.GetOptions{})
	if err != nil || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != "uid-of-pod" {
		t.Errorf("Got the owners %v (%v), want the pod", lease.OwnerReferences, err)
	}
	// kubectl rollout undo gives the old ReplicaSet the highest revision.
	deployed(t, client, "old-1", "old", 3)
	renew(t, older)
	tell(t, client, newer, older)
	leads(t, newer, false)
	leads(t, older, true)
	// The ReplicaSet is deleted before its pods.
	if err := client.Tracker().Delete(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, ns, "old"); err != nil {
		t.Fatal(err)
	}
	renew(t, older)
	tell(t, client, newer, older)
	leads(t, older, true)
}

// TestSelf checks what a replica knows of itself: also if its pod is not found any more, as after a restore of the API
// server's data, if its ReplicaSet has lost its owner, and if another Deployment has adopted that.
func TestSelf(t *testing.T) {
	client := fake.NewClientset()
	owned := func(deployment, revision string) {
		t.Helper()
		deployed(t, client, "pod", "set", 1)
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "set", Annotations: map[string]string{revisionOfReplicaSet: revision}}}
		if deployment != "" {
			rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment, UID: types.UID(deployment + "-uid"), Controller: new(true)}}
		}
		if err := client.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("replicasets"), rs, ns); err != nil {
			t.Fatal(err)
		}
	}
	owned("postern", "7")
	r := inPod(t, client, "pod", "digest")
	want := Identity{Deployment: "postern", UID: "postern-uid", Revision: 7, Digest: "digest"}
	for name, change := range map[string]func(){
		"as it started": func() {},
		"the pod is not found": func() {
			if err := client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), ns, "pod"); err != nil {
				t.Fatal(err)
			}
		},
		"no owner":              func() { owned("", "7") },
		"a revision that falls": func() { owned("postern", "6") },
	} {
		change()
		renew(t, r)
		if got := r.View().Self; got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	changed := r.Changed()
	owned("second", "2")
	renew(t, r)
	if got, want := r.View().Self, (Identity{Deployment: "second", UID: "second-uid", Revision: 2, Digest: "digest"}); got != want {
		t.Errorf("Got %+v, want %+v", got, want)
	}
	select {
	case <-changed:
	default:
		t.Error("Nobody is told that the replica belongs to another Deployment")
	}
}

func TestDeadReplicasDoNotCount(t *testing.T) {
	client := fake.NewClientset()
	old, later := member(t, client, "old", "a"), member(t, client, "later", "b")
	tell(t, client, old, later)
	leads(t, old, false)
	// The later replica is killed.
	for range deadAfter - 2 {
		renew(t, old)
		tell(t, client, old)
	}
	leads(t, old, false)
	for range 2 {
		renew(t, old)
		tell(t, client, old)
	}
	leads(t, old, true)
	// It was only suspended.
	renew(t, later)
	tell(t, client, old)
	leads(t, old, false)
}

// TestNobodyDiesWhileTheAPIServerIsAway renews nothing for a long time, because no call gets through.
func TestNobodyDiesWhileTheAPIServerIsAway(t *testing.T) {
	client := fake.NewClientset()
	old, later := member(t, client, "old", "a"), member(t, client, "later", "b")
	tell(t, client, old, later)
	away := true
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("connection refused")
	})
	for range 10 * deadAfter {
		if err := old.renew(t.Context()); err == nil {
			t.Fatal("Renewed without an API server")
		}
	}
	away = false
	tell(t, client, old)
	leads(t, old, false)
	// The watch stands still although the writes get through.
	for range 10 * deadAfter {
		renew(t, old)
	}
	leads(t, old, false)
}

// TestForgedRenewals lets somebody else write to the Lease of a replica, which then must not count the others as dead.
func TestForgedRenewals(t *testing.T) {
	client := fake.NewClientset()
	victim, later := member(t, client, "victim", "a"), member(t, client, "later", "b")
	tell(t, client, victim, later)
	leases := client.CoordinationV1().Leases(ns)
	lease, err := leases.Get(t.Context(), "victim", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := lease.Spec.RenewTime
	for i := range 10 * deadAfter {
		// Times of somebody else, and the same own time again and again.
		if lease.Spec.RenewTime = first; i%2 == 0 {
			lease.Spec.RenewTime = &metav1.MicroTime{Time: first.Add(time.Duration(i+1) * time.Second)}
		}
		victim.observe(lease)
		victim.observe(lease.DeepCopy())
	}
	leads(t, victim, false)
	if v := victim.View(); !slices.Contains(v.Living, "later") {
		t.Errorf("Got the view %+v, want that the other lives", v)
	}
	// Its own renewals count, each once. The watch may show them late, and only some of them.
	var late []*coordinationv1.Lease
	for range maxWritten + 1 {
		renew(t, victim)
		if lease, err = leases.Get(t.Context(), "victim", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		late = append(late, lease)
	}
	if n := len(victim.written); n != maxWritten {
		t.Errorf("Keeps %d renewals, want at most %d", n, maxWritten)
	}
	before := victim.ticks
	for _, i := range []int{2, 3, 4, 4, 3, 5, maxWritten} {
		victim.observe(late[i])
	}
	if n := victim.ticks - before; n != 5 {
		t.Errorf("Counted %d renewals, want 5", n)
	}
	leads(t, victim, true)
}

func TestDeadLeasesAreRemoved(t *testing.T) {
	client := fake.NewClientset()
	alive, dead := member(t, client, "alive", "a"), member(t, client, "dead", "a")
	tell(t, client, alive, dead)
	for range 4*deadAfter + 1 {
		renew(t, alive)
		tell(t, client, alive)
	}
	if _, err := client.CoordinationV1().Leases(ns).Get(t.Context(), "dead", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Reading the Lease of the dead replica: got %v, want not found", err)
	}
}

func TestLeaving(t *testing.T) {
	client := fake.NewClientset()
	one, two := member(t, client, "one", "a", "/new"), member(t, client, "two", "b")
	tell(t, client, one, two)
	if err := two.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	leads(t, two, false)
	tell(t, client, one)
	leads(t, one, true)
	if one.View().AllServe("/new") {
		t.Error("A replica that leaves still answers requests, so what it does not serve must not be registered")
	}
	// Both leave at the same moment: at least the second sees that nobody stays.
	if last, err := two.Last(t.Context()); err != nil || last {
		t.Errorf("Got %v (%v), want that the other stays", last, err)
	}
	if err := one.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Replicas{one, two} {
		if last, err := r.Last(t.Context()); err != nil || !last {
			t.Errorf("Got %v (%v), want that nobody stays", last, err)
		}
	}
	if err := errors.Join(two.Register(t.Context()), two.Forget(t.Context()), two.Forget(t.Context())); err != nil {
		t.Fatal(err)
	}
	one.lose(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "two"}})
	if !one.View().AllServe("/new") || len(one.View().Living) != 0 {
		t.Errorf("Got the view %+v once the other has ended", one.View())
	}
}

func TestAlone(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("patch", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), ns)
	})
	r := member(t, client, "one", "a")
	leads(t, r, true)
	refused := fake.NewClientset()
	refused.PrependReactor("patch", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), "one", errors.New("no"))
	})
	if err := New(Options{Client: refused, Namespace: ns, Name: "one"}).Join(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("Got the error %v, want the missing permission", err)
	}
}

// TestForeignLeases checks that a Lease which no replica wrote has no effect.
func TestForeignLeases(t *testing.T) {
	client := fake.NewClientset()
	r := member(t, client, "one", "a")
	for i, annotations := range []map[string]string{
		nil,
		{revisionAnnotation: "x", termAnnotation: "1", stateAnnotation: "Registering"},
		{revisionAnnotation: "1", termAnnotation: "99999999999999999999", stateAnnotation: "Registering"},
		{revisionAnnotation: "1", termAnnotation: "1", stateAnnotation: "Asleep"},
	} {
		r.observe(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Annotations: annotations}})
	}
	if v := r.View(); !v.Leads || len(v.Living) != 0 {
		t.Errorf("Got the view %+v, want this replica only", v)
	}
}

// TestRun lets two replicas find each other through the watch.
func TestRun(t *testing.T) {
	client := fake.NewClientset()
	one, two := member(t, client, "one", "a"), member(t, client, "two", "b")
	changed := one.Changed()
	for _, r := range []*Replicas{one, two} {
		r.interval = 20 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Running: %v", err)
			}
		})
	}
	select {
	case <-changed:
	case <-time.After(20 * time.Second):
		t.Fatal("The view has not changed")
	}
	for deadline := time.Now().Add(20 * time.Second); one.View().Leads || !two.View().Leads; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("Got the views %+v and %+v, want that the second leads", one.View(), two.View())
		}
	}
}

// TestInstallation checks which object the Events about all replicas are about.
func TestInstallation(t *testing.T) {
	client := fake.NewClientset()
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "set", Annotations: map[string]string{revisionOfReplicaSet: "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "postern", UID: "uid-of-deployment", Controller: new(true)}},
	}}
	deployed(t, client, "pod", "set", 1)
	if err := client.Tracker().Update(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, rs, ns); err != nil {
		t.Fatal(err)
	}
	deployed(t, client, "bare", "other", 1)
	for pod, want := range map[string]corev1.ObjectReference{
		"pod":  {APIVersion: "apps/v1", Kind: "Deployment", Namespace: ns, Name: "postern", UID: "uid-of-deployment"},
		"bare": {APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: "bare", UID: "uid-of-pod"},
	} {
		if got := inPod(t, client, pod, "a").Installation(); got == nil || *got != want {
			t.Errorf("%s: got %v, want %v", pod, got, want)
		}
	}
	if got := member(t, client, "process", "a").Installation(); got == nil || got.Kind != "Lease" {
		t.Errorf("Got %v, want the Lease of a replica that runs in no pod", got)
	}
	client.PrependReactor("patch", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, ns)
	})
	if got := member(t, client, "process", "a").Installation(); got != nil {
		t.Errorf("Got %v, want nothing without the namespace", got)
	}
}
