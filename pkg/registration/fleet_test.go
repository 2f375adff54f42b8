package registration

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

// replicaSet returns a ReplicaSet of the Deployment postern, whose hash is its name.
func replicaSet(hash, revision string) *appsv1.ReplicaSet {
	s := &appsv1.ReplicaSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "postern-system", Name: hash, OwnerReferences: []metav1.OwnerReference{controlledBy("Deployment", "postern")},
			Annotations: map[string]string{revisionOfDeployment: revision},
		},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "postern", "pod-template-hash": hash}}},
	}
	if revision == "" {
		s.Annotations = nil
	}
	return s
}

func controlledBy(kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name + "-uid"), Controller: new(true)}
}

// of makes a pod one of a ReplicaSet.
func of(hash string, p corev1.Pod) corev1.Pod {
	p.Labels["pod-template-hash"] = hash
	p.OwnerReferences = []metav1.OwnerReference{controlledBy("ReplicaSet", hash)}
	return p
}

// fleetOf returns the Fleet of the pod "us" of the ReplicaSet "new".
func fleetOf(t *testing.T, c *cluster) *Fleet {
	t.Helper()
	us := of("new", runningPod("us"))
	c.add(t, pods, &us)
	c.add(t, replicaSets, replicaSet("new", "7"))
	return NewFleet(c, FleetOptions{Namespace: "postern-system", Pod: "us", Digest: "d"})
}

func mustLook(t *testing.T, f *Fleet) {
	t.Helper()
	if err := f.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func in(phase corev1.PodPhase, p corev1.Pod) corev1.Pod {
	p.Status.Phase = phase
	return p
}

// TestFleet looks at the pods of a Deployment.
func TestFleet(t *testing.T) {
	elsewhere := of("old", runningPod("elsewhere"))
	elsewhere.Labels["app"] = "another"
	for name, tt := range map[string]struct {
		pod          corev1.Pod
		mixed, alone bool
	}{
		"of its own version":          {of("new", runningPod("twin")), false, true},
		"of another one":              {of("old", runningPod("old")), true, false},
		"without a hash":              {runningPod("old"), true, false},
		"that ends":                   {of("old", terminating(runningPod("old"))), true, true},
		"that has not started":        {of("old", waitingPod("old")), true, true},
		"that has ended":              {of("old", in(corev1.PodSucceeded, runningPod("old"))), false, true},
		"that was evicted":            {of("old", in(corev1.PodFailed, waitingPod("old"))), false, true},
		"of another Deployment":       {elsewhere, false, true},
		"of its own version, waiting": {of("new", waitingPod("twin")), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			f := fleetOf(t, c)
			if f.Mixed() || !f.MayDiffer() {
				t.Error("Before the first look, nothing is known of a Deployment")
			}
			c.add(t, pods, &tt.pod)
			mustLook(t, f)
			if f.Mixed() != tt.mixed || f.MayDiffer() != tt.mixed || f.isAlone() != tt.alone {
				t.Errorf("Got mixed %t and alone %t, want %t and %t", f.Mixed(), f.isAlone(), tt.mixed, tt.alone)
			}
			if got, want := f.claim(), (claim{"postern", "postern-uid", 7, "d"}); got != want {
				t.Errorf("Got the claim %+v, want %+v", got, want)
			}
			if got := f.Reference(); got.Kind != "Pod" || got.Name != "us" || got.UID != "us-uid" {
				t.Errorf("Got the reference %v, want the pod", got)
			}
			if got := f.Installation(); got.Kind != "Deployment" || got.Name != "postern" || got.UID != "postern-uid" {
				t.Errorf("Got the installation %v, want the Deployment", got)
			}
		})
	}
}

// TestOwnPodIsNotAnother has somebody take the hash from the labels of the pod.
func TestOwnPodIsNotAnother(t *testing.T) {
	c := newCluster(t)
	f := fleetOf(t, c)
	us := runningPod("us")
	us.OwnerReferences = []metav1.OwnerReference{controlledBy("ReplicaSet", "new")}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&us)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Tracker().Update(pods, &unstructured.Unstructured{Object: content}, "postern-system"); err != nil {
		t.Fatal(err)
	}
	if mustLook(t, f); f.Mixed() {
		t.Error("The own pod counts as one of another version")
	}
}

// TestNewReplicaIsSeen has a replica unlike those that have registered wait until these have looked at the pods.
func TestNewReplicaIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, ourNamespace())
		c.deploy(t, "postern", 7)
		first := newRegistrar(t, c, slower)
		mustSync(t, first, c)
		next := newRegistrar(t, c, nil)
		next.fleet = fleetOf(t, c)
		if err := next.Prepare(t.Context()); !errors.Is(err, errNotSeen) {
			t.Errorf("Got the error %v, want %v", err, errNotSeen)
		}
		time.Sleep(lateTime - time.Second)
		if err := next.Prepare(t.Context()); !errors.Is(err, errNotSeen) {
			t.Errorf("A second too early: got the error %v, want %v", err, errNotSeen)
		}
		time.Sleep(2 * time.Second)
		if err := next.Prepare(t.Context()); err != nil {
			t.Errorf("Got the error %v, want a replica that takes part", err)
		}
		equal := newRegistrar(t, c, nil)
		equal.fleet = NewFleet(c, FleetOptions{Namespace: "postern-system", Pod: "us", Digest: "d"})
		settle(t, c, next)
		if err := equal.Prepare(t.Context()); err != nil {
			t.Errorf("Got the error %v of a replica like those that have registered", err)
		}
	})
}

// TestMixedLasts checks how long a pod of another version counts, and what a look that fails means.
func TestMixedLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		f := fleetOf(t, c)
		old := of("old", runningPod("old"))
		c.add(t, pods, &old)
		mustLook(t, f)
		if err := c.Tracker().Delete(pods, "postern-system", "old"); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.Run(ctx); close(done) }()
		defer func() { stop(); <-done }()
		changed := f.Changed()
		time.Sleep(mixedTime - 2*lookInterval)
		if !f.Mixed() {
			t.Error("The pod does not count any more, want a minute")
		}
		select {
		case <-changed:
			t.Error("Something has changed")
		default:
		}
		<-changed
		if f.Mixed() {
			t.Error("The pod still counts")
		}
		if !f.MayDiffer() {
			t.Error("Plugins do not mend any more, want time for the other replicas to find out the same")
		}
		time.Sleep(mendTime - mixedTime)
		if f.MayDiffer() {
			t.Error("Plugins still mend")
		}
		var away bool
		c.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return away, nil, errors.New("away") })
		away, changed = true, f.Changed()
		<-changed
		if !f.Mixed() {
			t.Error("Nothing is known, want that others may run")
		}
		away, changed = false, f.Changed()
		<-changed
		if f.Mixed() {
			t.Error("The pods are known again")
		}
	})
}

// TestWhoThisIs finds out to which Deployment a replica belongs.
func TestWhoThisIs(t *testing.T) {
	c := newCluster(t)
	f := NewFleet(c, FleetOptions{Namespace: "postern-system", Pod: "us", Digest: "d"})
	want := func(when string, wanted claim) {
		t.Helper()
		mustLook(t, f)
		if got := f.claim(); got != wanted {
			t.Errorf("%s: got the claim %+v, want %+v", when, got, wanted)
		}
	}
	change := func(gvr schema.GroupVersionResource, name string, do func(*unstructured.Unstructured)) {
		t.Helper()
		obj, err := c.Tracker().Get(gvr, "postern-system", name)
		if err != nil {
			t.Fatal(err)
		}
		u := obj.(*unstructured.Unstructured).DeepCopy()
		do(u)
		if err := c.Tracker().Update(gvr, u, "postern-system"); err != nil {
			t.Fatal(err)
		}
	}
	revise := func(revision string) {
		change(replicaSets, "new", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{revisionOfDeployment: revision})
		})
	}
	want("without a pod", claim{Digest: "d"})
	if got := f.Reference(); got.Kind != "Namespace" || got.Name != "postern-system" || got.Namespace != "postern-system" {
		t.Errorf("Got the reference %v, want the namespace", got)
	}
	us := runningPod("us")
	c.add(t, pods, &us)
	want("a pod of its own", claim{Digest: "d"})
	change(pods, "us", func(u *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{controlledBy("ReplicaSet", "new")})
	})
	want("without its ReplicaSet", claim{Digest: "d"})
	c.add(t, replicaSets, replicaSet("new", ""))
	want("without a revision", claim{Digest: "d"})
	revise("x")
	want("with a revision that is no number", claim{Digest: "d"})
	if f.Mixed() || !f.MayDiffer() {
		t.Error("Outside of a Deployment nothing is known")
	}
	revise("3")
	want("with all", claim{"postern", "postern-uid", 3, "d"})
	revise("5")
	want("after a rollback", claim{"postern", "postern-uid", 5, "d"})
	revise("2")
	want("after a restore of older data", claim{"postern", "postern-uid", 2, "d"})
	change(replicaSets, "new", func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) })
	want("of a Deployment that was deleted without it", claim{"postern", "postern-uid", 2, "d"})
	if err := c.Tracker().Delete(pods, "postern-system", "us"); err != nil {
		t.Fatal(err)
	}
	want("after a restore of data without the pod", claim{"postern", "postern-uid", 2, "d"})
	away := errors.New("away")
	c.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, away })
	if err := f.Look(t.Context()); !errors.Is(err, away) {
		t.Errorf("Got the error %v, want that of the API server", err)
	}
}
