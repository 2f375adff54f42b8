package fleetquota_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/pkg/admissions/fleetquota/fleetquota"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// TestFullAccount has an account with as many entries as it holds. Users make entries with requests that store nothing, so a
// further request is denied, and is no failure.
func TestFullAccount(t *testing.T) {
	var entries []string
	for i := range 2000 {
		entries = append(entries, fmt.Sprintf("{request: r%d, version: v1, resource: pods, namespace: shop, name: p%d, usage: {requests.cpu: 1m}}", i, i))
	}
	text := fmt.Sprintf(cluster, "v1", "Pod")
	text = strings.Replace(text, "sequence: 3,", "sequence: 3, pending: ["+strings.Join(entries, ", ")+"],", 1)
	text = strings.Replace(text, "spec: {}", "spec: {containers: [{name: main, image: web, resources: {requests: {cpu: 1m}}}]}", 1)
	text = strings.Replace(text, "want: {allowed: true}", fmt.Sprintf("want: {allowed: false, code: %d, reason: TooManyRequests, message: %q}",
		http.StatusTooManyRequests, "charging fleet quota cpus: too many requests are admitted that the caches do not show yet"), 1)
	c, err := admittest.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range c.Check(admittest.Context(t), fleetquota.Plugin) {
		t.Error(problem)
	}
}
