//go:build soak

package e2e_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	soakRounds = 10
	soakRate   = 200
	// soakLimit bounds the number of creations.
	soakLimit = 400_000
)

// soakPlugins returns the plugins of a round. A rollout adds and removes families and plugins.
func soakPlugins(round int) []string {
	sets := [][]string{
		{"AlwaysPullImages"},
		{"AlwaysPullImages", "DefaultStorageClass", "StorageObjectInUseProtection", "DenyServiceExternalIPs"},
		{"AlwaysPullImages", "DefaultTolerationSeconds", "PodNodeSelector", "NamespaceExists", "StorageObjectInUseProtection"},
		{"AlwaysPullImages", "LimitRanger", "DefaultIngressClass", "PersistentVolumeClaimResize"},
	}
	return sets[round%len(sets)]
}

// TestSoak creates 200 objects a second. Meanwhile each round replaces both replicas by replicas with other plugins,
// replaces the CA, and kills a replica in every second round. No creation may fail but those in flight at a kill.
func TestSoak(t *testing.T) {
	c := suite.Lend(t)
	proxy := e2e.StartProxy(t)
	b := startBalancer(t, proxy)
	options := func(round int) e2e.Options {
		o := behind(proxy, e2e.Options{Plugins: soakPlugins(round), Service: true})
		o.Flags = quickCA("--shutdown-delay-duration=2s", "--shutdown-connections-duration=30s", "--failure-policy=Fail")
		return o
	}
	launch := func(round int) *e2e.Postern {
		p := c.LaunchPostern(t, options(round))
		b.add(p)
		return p
	}
	replicas := []*e2e.Postern{launch(0), launch(0)}
	for _, p := range replicas {
		p.AwaitReady(t)
		p.AwaitRegistered(t)
	}
	awaitCalled(t, c)
	l := startMixedLoad(t, c, soakRate, soakLimit, pullsAlways)
	for round := 1; round <= soakRounds; round++ {
		begin := time.Now()
		for i, old := range replicas {
			replicas[i] = launch(round)
			replicas[i].AwaitReady(t)
			replicas[i].AwaitRegistered(t)
			old.Stop(t)
			b.remove(t.Context(), old)
			l.checkLost(t)
		}
		if round%2 == 0 {
			b.remove(t.Context(), replicas[0])
			l.kill(replicas[0])
			replicas[0] = launch(round)
			replicas[0].AwaitReady(t)
		}
		code, said := c.RunPostern(t, "rotate-ca", "--kubeconfig="+c.Kubeconfig(controlplane.Admin), "--wait", "--timeout=2m")
		if code != 0 {
			t.Fatalf("rotate-ca exited with %d and said:\n%s", code, said)
		}
		l.awaitMore(t, 100)
		t.Logf("Round %d with %v took %v; %d objects so far", round, soakPlugins(round), time.Since(begin).Round(time.Second), l.created.Load())
	}
	// The last two replicas go on for a while, with as much work as before.
	l.awaitMore(t, 10*soakRate)
	before := []usage{usageOf(t, replicas[0]), usageOf(t, replicas[1])}
	l.awaitMore(t, 30*soakRate)
	for i, p := range replicas {
		after := usageOf(t, p)
		t.Logf("Replica %d: %+v, and 30 s later %+v", i, before[i], after)
		if after.goroutines > before[i].goroutines+50 || after.files > before[i].files+30 || after.memory > 1.5*before[i].memory {
			t.Errorf("Replica %d grows: %+v, and 30 s later %+v", i, before[i], after)
		}
	}
	l.stop(t)
}

// usage is what a replica uses.
type usage struct{ goroutines, files, memory float64 }

func usageOf(t *testing.T, p *e2e.Postern) usage {
	t.Helper()
	return usage{p.Metric(t, "go_goroutines"), p.Metric(t, "process_open_fds"), p.Metric(t, "process_resident_memory_bytes")}
}
