package e2e_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	// repairBound is the documented maximum time for the repair of an edited or deleted configuration.
	repairBound = 5 * time.Second
	// settleBound ends a test that waits for an event that never happens. It does not measure anything.
	settleBound = 30 * time.Second
	// outageBound is the maximum time for a repair after an outage. Clients wait up to half a minute between two
	// attempts.
	outageBound = time.Minute
	// calm is the time during which no Postern may write once the configurations are up to date. Two conflicting
	// Posterns would write about twice a second.
	calm = 3 * time.Second
)

var suite = e2e.NewSuite(controlplane.Options{ControllerManager: true})

func TestMain(m *testing.M) {
	code := m.Run()
	if err := suite.Stop(); err != nil {
		fmt.Fprintf(os.Stderr, "Stopping the control planes: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

// alwaysPull returns the options of a Postern that runs AlwaysPullImages, with additional flags.
func alwaysPull(flags ...string) e2e.Options {
	return e2e.Options{Plugins: []string{"AlwaysPullImages"}, Flags: flags}
}

// startServing starts a Postern and waits until the API server calls it. The API server calls Postern a moment after
// Postern has registered its configurations.
func startServing(t *testing.T, c *e2e.Cluster, o e2e.Options) *e2e.Postern {
	t.Helper()
	p := c.StartPostern(t, o)
	awaitCalled(t, c)
	return p
}

// awaitCalled waits until new pods get the image pull policy Always.
func awaitCalled(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	ns := c.Namespace(t)
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		return pullsAlways(c.Admin.CoreV1().Pods(ns).Create(ctx, pod("called"), dryRun()))
	})
}

// pod returns a pod with one container and the image pull policy IfNotPresent.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app", Image: "app", ImagePullPolicy: corev1.PullIfNotPresent},
		}},
	}
}

func dryRun() metav1.CreateOptions {
	return metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
}

// pullsAlways returns an error if the creation of the pod failed, or if its image pull policy is not Always.
func pullsAlways(pod *corev1.Pod, err error) error {
	if err != nil {
		return err
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if c.ImagePullPolicy != corev1.PullAlways {
			return fmt.Errorf("container %s has the policy %s", c.Name, c.ImagePullPolicy)
		}
	}
	return nil
}

// isUnchanged returns an error if the creation of the pod failed, or if its image pull policy is not IfNotPresent.
func isUnchanged(pod *corev1.Pod, err error) error {
	if err != nil {
		return err
	}
	if got := pod.Spec.Containers[0].ImagePullPolicy; got != corev1.PullIfNotPresent {
		return fmt.Errorf("the policy is %s", got)
	}
	return nil
}
