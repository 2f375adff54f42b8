package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// TestReplicaThatCannotBeCalled has a rollout to a replica with other plugins, whose port is not that of the Services. Its canary
// reaches the replica of the revision before. The new replica does not get ready and changes nothing, so the old one goes on
// enforcing. When the Services lead to the new replica, it takes over.
func TestReplicaThatCannotBeCalled(t *testing.T) {
	t.Parallel()
	c := suite.Start(t, controlplane.Options{})
	proxy := e2e.StartProxy(t)
	c.WriteService(t, e2e.CanaryServiceName, proxy.Addr())
	o := behind(proxy, deployed(t, c, "postern"))
	o.Service = true
	first := c.LaunchPostern(t, o)
	proxy.To(first.Addr())
	first.AwaitReady(t)
	first.AwaitRegistered(t)
	awaitCalled(t, c)
	all := configsOf(t, c)
	before := all.get()

	o = behind(proxy, revise(t, c, "postern", 2))
	o.Service, o.Plugins = true, []string{"PodNodeSelector"}
	second := c.LaunchPostern(t, o)
	const why = "the API server has not reached this replica by Service postern-canary"
	e2e.Eventually(t, settleBound, "the replica says why it is not ready", func(ctx context.Context) error {
		if got := second.Readyz(ctx); !strings.Contains(got, why) {
			return fmt.Errorf("got %s", got)
		}
		return nil
	})
	ns := c.Namespace(t)
	e2e.Throughout(t, time.Second, "the old replica goes on", func(ctx context.Context) error {
		if second.Ready(ctx) == nil {
			return errors.New("it is ready")
		}
		return errors.Join(all.same(ctx, before), pullsAlways(c.Admin.CoreV1().Pods(ns).Create(ctx, pod("good"), dryRun())))
	})

	proxy.To(second.Addr())
	second.AwaitReady(t)
	second.AwaitRegistered(t)
	first.Stop(t) // The API server has connections to it.
	e2e.Eventually(t, settleBound, "the new replica has registered its plugins", func(ctx context.Context) error {
		if all.same(ctx, before) == nil {
			return errors.New("the configurations are those of the first replica")
		}
		made, err := c.Admin.CoreV1().Pods(ns).Create(ctx, pod("good"), dryRun())
		if err == nil && pullsAlways(made, nil) == nil {
			err = errors.New("AlwaysPullImages is still enforced")
		}
		return err
	})
	e2e.Eventually(t, repairBound, "no canary is left", func(ctx context.Context) error {
		list, err := c.Admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=postern-canary"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("got %v", list.Items)
		}
		return err
	})
}
