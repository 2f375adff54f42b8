package serviceaccount_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/serviceaccount"
	"github.com/postern-dev/postern/pkg/admit"
)

// cluster answers each GET of a service account by its number, which starts at 1.
// The informer has no accounts.
type cluster struct {
	gets   int
	plugin admit.Handler
}

func newCluster(t *testing.T, answer func(n int) error) *cluster {
	t.Helper()
	c := &cluster{}
	client := &fake.Clientset{}
	client.AddReactor("get", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		c.gets++
		return true, &corev1.ServiceAccount{}, answer(c.gets)
	})
	var err error
	c.plugin, err = serviceaccount.Plugin.New(admit.Deps{Client: client, Informers: informers.NewSharedInformerFactory(client, 0)}, nil)
	if err != nil {
		t.Fatalf("Making the plugin: %v", err)
	}
	return c
}

// create sends the creation of a pod with that account.
func (c *cluster) create(ctx context.Context, account string) error {
	return c.plugin.Validate(ctx, &admit.Request{
		AdmissionRequest: &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: "web",
		},
		Object: &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: account}},
	})
}

func (c *cluster) wantGets(t *testing.T, want int) {
	t.Helper()
	if c.gets != want {
		t.Errorf("Got %d GETs, want %d", c.gets, want)
	}
}

func notFound(int) error {
	return apierrors.NewNotFound(corev1.Resource("serviceaccounts"), "default")
}

func wantNotFound(t *testing.T, got error, account string) {
	t.Helper()
	want := `pods "web" is forbidden: error looking up service account shop/` + account + `: serviceaccount "` + account + `" not found`
	if !apierrors.IsForbidden(got) || got.Error() != want {
		t.Errorf("Got error %v, want a denial with %q", got, want)
	}
}

func TestADefaultAccountThatIsBeingMadeIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, func(n int) error {
			if n < 3 {
				return notFound(n)
			}
			return nil
		})
		if err := c.create(t.Context(), "default"); err != nil {
			t.Errorf("Got error %v, want none", err)
		}
		c.wantGets(t, 3)
	})
}

func TestADefaultAccountIsAskedForTenTimesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, notFound)
		start := time.Now()
		wantNotFound(t, c.create(t.Context(), "default"), "default")
		c.wantGets(t, 10)
		// Only the pauses advance the fake clock of the synctest bubble.
		if took := time.Since(start); took < 9*100*time.Millisecond || took > 9*200*time.Millisecond {
			t.Errorf("Got pauses of %s together, want nine of 100 to 200 ms", took)
		}
	})
}

func TestAnotherAccountIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, notFound)
		wantNotFound(t, c.create(t.Context(), "builder"), "builder")
		c.wantGets(t, 1)
	})
}

func TestTheAnswerComesBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, notFound)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantNotFound(t, c.create(ctx, "default"), "default")
		if ctx.Err() != nil {
			t.Errorf("Got an answer after the deadline: %v", ctx.Err())
		}
		if c.gets < 2 || c.gets > 9 {
			t.Errorf("Got %d GETs in a second, want more than one and not all ten", c.gets)
		}
	})
}

func TestARequestThatIsCanceledIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := newCluster(t, func(n int) error {
			cancel()
			return notFound(n)
		})
		wantNotFound(t, c.create(ctx, "default"), "default")
		c.wantGets(t, 1)
	})
}

func TestAFailureEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := apierrors.NewServiceUnavailable("the storage is away")
		c := newCluster(t, func(n int) error {
			if n < 2 {
				return notFound(n)
			}
			return away
		})
		if err := c.create(t.Context(), "default"); !errors.Is(err, away) || apierrors.IsForbidden(err) {
			t.Errorf("Got error %v, want %v and no denial", err, away)
		}
		c.wantGets(t, 2)
	})
}

// TestALargeAccountIsRead has the secret of a pod in an account that is too large for the cache.
func TestALargeAccountIsRead(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "large", Annotations: map[string]string{admit.TooLarge: ""}}}
	client := fake.NewClientset(account)
	client.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		whole := account.DeepCopy()
		whole.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
		whole.Secrets, whole.AutomountServiceAccountToken = []corev1.ObjectReference{{Name: "a"}}, new(bool)
		return true, whole, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := serviceaccount.Plugin.New(admit.Deps{Client: client, Informers: factory}, nil)
	if err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	for secret, allowed := range map[string]bool{"a": true, "b": false} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "large", Containers: []corev1.Container{{Name: "c"}}, Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}},
		}}}
		err := plugin.Mutate(t.Context(), &admit.Request{
			AdmissionRequest: &admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: "web",
			},
			Object: pod,
		})
		if (err == nil) != allowed || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("The secret %s: got %v, want it allowed: %t", secret, err, allowed)
		}
		if len(pod.Spec.Volumes) != 1 {
			t.Errorf("Got the volumes %v, want no token, as the account says", pod.Spec.Volumes)
		}
	}
}
