package fleetquota_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/postern-dev/postern/pkg/admissions/fleetquota/fleetquota"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	quotav1alpha1 "github.com/postern-dev/postern/pkg/apis/quota/v1alpha1"
)

// TestOldRequests has the plugin find out in the background which old requests have stored nothing. A request that cannot be
// looked up keeps no other one charged, and of no object more than the metadata is read.
func TestOldRequests(t *testing.T) {
	t.Parallel()
	var entries []string
	for _, resource := range []string{"jobs", "pods", "deployments"} {
		for i := range 20 {
			entries = append(entries, fmt.Sprintf("{request: %[1]s%[2]d, version: v1, resource: %[1]s, namespace: shop, name: p%[2]d, uid: u%[2]d, usage: {requests.cpu: 1m}}", resource, i))
		}
	}
	text := fmt.Sprintf(cluster, "v1", "Pod")
	text = strings.Replace(text, "sequence: 3,", "sequence: 3, pending: ["+strings.Join(entries, ", ")+"],", 1)
	text += "errors:\n- {verb: get, resource: jobs, code: 403, message: forbidden}\n"
	c, err := admittest.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(admittest.Context(t))
	s, err := c.Serve(ctx, fleetquota.Plugin)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	for _, f := range s.Background {
		background.Go(func() { f(ctx) })
	}
	left := func() (left []string) {
		u, err := s.Dynamic.Tracker().Get(quotav1alpha1.Allowances(), "", "cpus")
		if err != nil {
			t.Fatal(err)
		}
		pending, _, err := unstructured.NestedSlice(u.(*unstructured.Unstructured).Object, "status", "pending")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pending {
			left = append(left, p.(map[string]any)["resource"].(string))
		}
		return slices.Compact(left)
	}
	for deadline := time.Now().Add(time.Minute); !slices.Equal(left(), []string{"jobs"}); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("Got the entries of %v, want those of jobs, which cannot be read", left())
		}
		s.Clock.Step(5 * time.Second)
	}
	for _, a := range s.Dynamic.Actions() {
		if a.GetVerb() == "get" && a.GetResource().Resource != quotav1alpha1.AllowanceResource {
			t.Errorf("Got the %s, want only the metadata", a.GetResource().Resource)
		}
	}
}
