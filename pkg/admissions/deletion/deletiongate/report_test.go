package deletiongate_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/admissions/deletion/deletiongate"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// counted starts a replica with metrics.
func (c *cluster) counted(t *testing.T) (admit.Handler, metrics.KubeRegistry) {
	t.Helper()
	before := len(c.env.Background)
	deps, err := c.env.Deps(deletiongate.Plugin, nil)
	if err != nil {
		t.Fatal(err)
	}
	registry := metrics.NewKubeRegistry()
	deps.Metrics = registry
	h, err := deletiongate.Plugin.New(deps, c.config)
	if err != nil {
		t.Fatal(err)
	}
	c.env.Informers.StartWithContext(t.Context())
	c.env.Informers.WaitForCacheSync(t.Context().Done())
	for _, f := range c.env.Background[before:] {
		go f(t.Context())
	}
	// The recorder drops what it gets before it has started.
	time.Sleep(200 * time.Millisecond)
	return h, registry
}

// values returns the counters and gauges, and the sums of the histograms, by name and labels. The time of requests is left
// out, but not how many there were.
func values(t *testing.T, registry metrics.KubeRegistry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "postern_deletion_gate_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			switch {
			case m.GetCounter() != nil:
				out[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				out[name] = m.GetGauge().GetValue()
			case strings.HasPrefix(name, "backend_duration"):
				out[name] = float64(m.GetHistogram().GetSampleCount())
			default:
				out[name] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return out
}

// told returns the messages of the Events, by reason.
func (c *cluster) told(t *testing.T) map[string]string {
	t.Helper()
	list, err := c.env.Client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range list.Items {
		out[e.Type+" "+e.Reason] = e.Message
		if o := e.InvolvedObject; o.Kind != "Pod" || o.Name != "db-0" || o.UID != "6ba7b810" {
			t.Errorf("Got an Event about %+v, want the pod", o)
		}
	}
	return out
}

// TestTheStoryOfAnUnwrittenRecord refuses a pod twice without a record, and then with one.
func TestTheStoryOfAnUnwrittenRecord(t *testing.T) {
	ctx := admittest.Context(t)
	b := newBackend(t)
	c := newCluster(t, b.config(t, ", retryAfterSeconds: 300"), thePod())
	broken := c.breakPatches(strings.Repeat("away ", 100))
	h, registry := c.counted(t)
	for i := range 3 {
		broken.Store(i < 2)
		if s := remove(ctx, t, h, c.pod(t), "alice"); s == nil || len(s.Message) > 500 {
			t.Errorf("Got %v, want a refusal of at most 500 bytes", s)
		}
		waiting := values(t, registry)["waiting_pods"]
		if want := float64(i / 2); waiting != want {
			t.Errorf("Got %v waiting pods after %d refusals, want %v: a pod without a record is not asked about", waiting, i+1, want)
		}
	}
	if got := values(t, registry)["refusals_total database"]; got != 3 {
		t.Errorf("Got %v refusals, want 3", got)
	}
	var got []string
	eventually(t, "The Events", func() bool {
		list, err := c.env.Client.CoreV1().Events("shop").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, e := range list.Items {
			got = append(got, fmt.Sprint(e.Reason, e.Count, strings.Contains(e.Message, "cannot be written: away "), strings.Contains(e.Message, "shards are left")))
		}
		slices.Sort(got)
		return len(got) == 2
	})
	if want := []string{"DeletionWaiting1 false true", "DeletionWaiting1 true false"}; !slices.Equal(got, want) {
		t.Errorf("Got the Events %q, want %q", got, want)
	}
}

// TestTheStoryOfAWait compares the metrics and the Events of the three ways in which a wait ends.
func TestTheStoryOfAWait(t *testing.T) {
	const waiting = `The deletion waits: gate "database" has been closed for 0s of at most 4m0s: `
	for name, tc := range map[string]struct {
		ready, broken, ignored bool
		after                  time.Duration
		metrics                map[string]float64
		events                 map[string]string
	}{
		"the gate opens": {
			ready: true, after: 3 * time.Second,
			metrics: map[string]float64{
				"refusals_total database": 1, "waiting_pods": 1, "wait_duration_seconds database ready": 3,
				"backend_duration_seconds Prepare database answered": 1, "backend_duration_seconds Check database answered": 1,
			},
			events: map[string]string{
				"Normal DeletionWaiting": waiting + "shards are left",
				"Normal DeletionAllowed": `Let go: gate "database" is ready, after 3s`,
			},
		},
		"the longest wait": {
			after: 4 * time.Minute,
			metrics: map[string]float64{
				"refusals_total database": 1, "waiting_pods": 1, "wait_duration_seconds database max_wait": 240,
				"backend_duration_seconds Prepare database answered": 1,
			},
			events: map[string]string{
				"Normal DeletionWaiting":      waiting + "shards are left",
				"Warning DeletionWaitExpired": `Let go: gate "database" was closed for its longest wait, after 4m0s`,
			},
		},
		"a backend that does not answer": {
			broken: true, ignored: true,
			metrics: map[string]float64{
				"wait_duration_seconds database unavailable": 0, "waiting_pods": 0, "backend_duration_seconds Prepare database failed": 1,
			},
			events: map[string]string{
				"Warning DeletionGateUnavailable": `Let go: gate "database" does not answer, and its failure policy is Ignore, after 0s`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := admittest.Context(t)
			b := newBackend(t)
			b.set(false, tc.broken)
			// The replica asks on its own account only after all of this.
			config := b.config(t, ", maxWait: 4m, retryAfterSeconds: 300")
			if tc.ignored {
				config = bytes.ReplaceAll(config, []byte("timeoutSeconds: 1"), []byte("timeoutSeconds: 1, failurePolicy: Ignore"))
			}
			c := newCluster(t, config, thePod())
			h, registry := c.counted(t)
			if s := remove(ctx, t, h, c.pod(t), "alice"); (s == nil) != tc.ignored {
				t.Errorf("Got %v at first, want a refusal: %t", s, !tc.ignored)
			}
			if !tc.ignored {
				b.set(tc.ready, tc.broken)
				c.env.Clock.Step(tc.after)
				if s := remove(ctx, t, h, c.pod(t), "alice"); s != nil {
					t.Errorf("Got %v, want no refusal", s)
				}
			}
			eventually(t, "The Events", func() bool { return maps.Equal(c.told(t), tc.events) })
			if diff := cmp.Diff(tc.metrics, values(t, registry)); diff != "" {
				t.Errorf("The metrics differ (- want, + got):\n%s", diff)
			}
			if t.Failed() {
				t.Logf("The Events are %q", slices.Collect(maps.Values(c.told(t))))
			}
		})
	}
}
