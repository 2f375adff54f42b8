package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// hardPods are changes of a pod to something that an API server stores and that is hard to decode. Each pod also has an
// annotation that looks like a number with more digits than Postern decodes.
func hardPods() map[string]func(*corev1.Pod) {
	memory := func(text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
		}
	}
	text := func(character string, n int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: strings.Repeat(character, n)}}
		}
	}
	at := func(seconds int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			// An API server cannot apply the patch of any webhook to an object with such a time.
			p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
			p.ManagedFields = []metav1.ManagedFieldsEntry{{
				Manager: "m", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: new(metav1.Unix(seconds, 0)),
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:gone":{}}}}`),
			}}
		}
	}
	return map[string]func(*corev1.Pod){
		"seconds": func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(math.MinInt64))}}
		},
		"memory": memory(strings.Repeat("9", 70)), "more-memory": memory(strings.Repeat("9", 2000)), "zeros": memory(strings.Repeat("0", 2000) + "1Gi"),
		"late": at(253402300800), "early": at(-62167219201), "latest": at(math.MaxInt64),
		"escapes": text("<", 1_250_000), "control-characters": text("\x01", 300_000), "no-text": text("\xff", 300_000),
		"attributes": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
				Driver: "d.example.com", VolumeAttributes: map[string]string{"\xff": "a", "\xfe": "b"},
			}}}}
		},
	}
}

// inProtobuf returns a client that sends protobuf, which has more values than JSON.
func inProtobuf(t *testing.T, c *e2e.Cluster) kubernetes.Interface {
	t.Helper()
	config := c.Config(t, controlplane.Admin)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestNobodyChoosesAFailure has a user who wants Postern to fail, so that the failure policy decides in its place: with Ignore
// a pod that a plugin denies would be stored, and with Fail a good one refused, or never deleted.
func TestNobodyChoosesAFailure(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	client := inProtobuf(t, c).CoreV1()
	parts, err := metadata.NewForConfig(c.Config(t, controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"Ignore", "Fail"} {
		t.Run(policy, func(t *testing.T) {
			namespace := c.Namespace(t)
			pods := client.Pods(namespace)
			p := c.StartPostern(t, e2e.Options{Plugins: []string{"AlwaysPullImages", "SecurityContextDeny"}, Flags: []string{"--failure-policy=" + policy}})
			e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
				return pullsAlways(pods.Create(ctx, pod("first"), dryRun()))
			})
			for name, change := range hardPods() {
				hard := pod(name)
				hard.Annotations = map[string]string{"digits": strings.Repeat("7", 2000)}
				hard.Finalizers = []string{"e2e.postern.dev/wait"}
				change(hard)
				denied := hard.DeepCopy()
				denied.Spec.Containers[0].SecurityContext = asRoot()
				_, err := pods.Create(t.Context(), denied, metav1.CreateOptions{})
				if err := deniedField(err, name, "SecurityContext.RunAsUser"); err != nil {
					t.Errorf("Creating the pod %s as root: %.500v", name, err)
				}
				stored, err := pods.Create(t.Context(), hard, metav1.CreateOptions{})
				if err := pullsAlways(stored, err); err != nil {
					t.Errorf("Creating the pod %s: %.500v", name, err)
					continue
				}
				// FleetQuota reads no more of the object of an old request.
				part, err := parts.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
				if err != nil || part.UID != stored.UID || part.ResourceVersion != stored.ResourceVersion {
					t.Errorf("Got the metadata %.500v of the pod %s and the error %.500v", part, name, err)
				}
				stored.Labels = map[string]string{"changed": "true"}
				if _, err = pods.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
					t.Errorf("Changing the pod %s: %.500v", name, err)
					continue
				}
				if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
					t.Errorf("Deleting the pod %s: %.500v", name, err)
				}
				if stored, err = pods.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
					t.Errorf("Reading the pod %s: %.500v", name, err)
					continue
				}
				stored.Finalizers = nil
				if _, err := pods.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
					t.Errorf("Removing the finalizer of the pod %s: %.500v", name, err)
				}
				if _, err := pods.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("Got %.500v for the pod %s, want that it is gone", err, name)
				}
			}
			decidesAll(t, p)
		})
	}
}

// decidesAll fails the test if Postern did not decide a request.
func decidesAll(t *testing.T, p *e2e.Postern) {
	t.Helper()
	for _, verdict := range []string{"failed", "rejected"} {
		if n := p.Metric(t, "postern_webhook_requests_total", `verdict="`+verdict+`"`); n != 0 {
			t.Errorf("%v requests %s, want that all were decided", n, verdict)
		}
	}
}

// TestLargeEventsAreCounted has a user who makes events larger, so that EventRateLimit, whose rules fail open, does not read
// them.
func TestLargeEventsAreCounted(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	ns := c.Namespace(t)
	const limit = `- name: EventRateLimit
  configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: SourceAndObject, qps: 1, burst: 2}]}`
	p := c.StartPostern(t, e2e.Options{Plugins: []string{"EventRateLimit"}, Flags: []string{configured(t, limit)}})
	events := inProtobuf(t, c).CoreV1().Events(ns)
	send := func(ctx context.Context, object, message string) error {
		_, err := events.Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "e-"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: object},
			Message: message, LastTimestamp: metav1.NewTime(time.Unix(math.MaxInt64, 0)),
		}, metav1.CreateOptions{})
		return err
	}
	// The limit leaves room for one more event each second, in which a slow machine sends no large one.
	e2e.Eventually(t, settleBound, "a large event is refused after small ones", func(ctx context.Context) error {
		for range 5 {
			if err := send(ctx, "object", ""); apierrors.IsTooManyRequests(err) {
				break
			} else if err != nil {
				return err
			}
		}
		switch err := send(ctx, "object", strings.Repeat("<", 1_250_000)); {
		case err == nil:
			return errors.New("it was stored")
		case !apierrors.IsTooManyRequests(err):
			return err
		}
		return nil
	})
	decidesAll(t, p)
}

// TestManyLargeRequestsOfAUser has a user whose large requests wait for the API server, so that Postern has no memory for all of
// them. With Ignore, failures would store objects that a plugin denies.
func TestManyLargeRequestsOfAUser(t *testing.T) {
	ring.Second(t, "400 clients keep the processors busy")
	t.Parallel()
	c := suite.Start(t, controlplane.Options{ControllerManager: true})
	suite.Alone(t)
	p := c.StartPostern(t, e2e.Options{
		Plugins: []string{"OwnerReferencesPermissionEnforcement"},
		Flags:   []string{"--failure-policy=Ignore", "--max-request-bytes-inflight=64Mi"},
	})
	ns := c.Namespace(t)
	mayFinalizeAll(t, c, ns, string(controlplane.Alice))
	alice := c.Client(t, controlplane.Alice).CoreV1().ConfigMaps(ns)
	text := strings.Repeat("x", 500_000)
	create := func(ctx context.Context, name string, owners int, last ...metav1.OwnerReference) error {
		m := &corev1.ConfigMap{ObjectMeta: ownedBy(name, owners), Data: map[string]string{"text": text}}
		m.OwnerReferences = append(m.OwnerReferences, last...)
		_, err := alice.Create(ctx, m, dryRun())
		return err
	}
	forbidden := blockingRef("apps/v1", "StatefulSet", "not-hers")
	e2e.Eventually(t, settleBound, "alice has her rights, and the API server calls Postern", func(ctx context.Context) error {
		if err := create(ctx, "any", 0, forbidden); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w, want it denied", err)
		}
		return create(ctx, "any", 1)
	})
	const clients, each = 400, 2
	results, start := make(chan error, clients*each), time.Now()
	for i := range clients {
		go func() {
			for n := range each {
				results <- create(t.Context(), fmt.Sprintf("flood-%d-%d", i, n), 99, forbidden)
			}
		}()
	}
	denied, busy := 0, 0
	for range clients * each {
		switch err := <-results; {
		case apierrors.IsForbidden(err):
			denied++
		case apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "denied the request: "):
			busy++
		default:
			t.Errorf("Got %.500v, want it denied", err)
		}
	}
	if denied == 0 {
		t.Error("The plugin decided nothing")
	}
	t.Logf("%d requests in %v: the plugin denied %d, and %d were too many", clients*each, time.Since(start), denied, busy)
	decidesAll(t, p)
}
