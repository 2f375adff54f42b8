package fleetquota_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/pkg/admissions/fleetquota/fleetquota"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// cluster is a case with a quota of 500 CPUs, of which this cluster has 20.
const cluster = `# Filled in by the test.
config:
  hub: {kubeConfigFile: "{backend}"}
  cluster: {name: eu-1}
  workloads:
  - {group: ray.io, version: v1, resource: rayclusters, kind: RayCluster, pods: [{path: spec.workerGroupSpecs.*, replicas: [replicas], template: template}]}
grants: [{apiGroups: [ray.io], resources: [rayclusters], verbs: [list, watch]}]
backend: []
cluster:
- apiVersion: quota.postern.dev/v1alpha1
  kind: FleetAllowance
  metadata: {name: cpus, uid: account, resourceVersion: "5"}
  spec: {hard: {requests.cpu: "500"}, others: {requests.cpu: "400"}, othersUsed: {requests.cpu: "380"}}
  status: {quota: quota, sequence: 3, allowance: {requests.cpu: "20"}}
request:
  operation: CREATE
  object: {apiVersion: %s, kind: %s, metadata: {name: large, namespace: shop, uid: u1}, spec: {}}
want: {allowed: true}
`

// TestLongLists sends objects whose lists have 100,000 items, or whose names are long. All of them are denied in bounded
// time, with a short answer that says why.
func TestLongLists(t *testing.T) {
	const n = 100_000
	const one = `{"name":"main","resources":{"requests":{"cpu":"1"}}}`
	items := func(item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	var names strings.Builder
	for i := range n {
		fmt.Fprintf(&names, `,{"name":"container-%d"}`, i)
	}
	long := strings.Repeat("ü", n)
	for _, test := range []struct {
		name, apiVersion, kind, spec string
		code                         int32
		want                         string
	}{
		{"a pod with containers that set nothing", "v1", "Pod", `{"containers":[` + names.String()[1:] + `]}`, 403, "must specify requests.cpu for: container-0,container-1,"},
		{"a pod that no etcd stores", "v1", "Pod", `{"containers":[` + items(one) + `]}`, 413, "Request entity too large"},
		{"a template that no etcd stores", "ray.io/v1", "RayCluster", `{"workerGroupSpecs":[{"template":{"spec":{"containers":[` + items(one) + `]}}}]}`, 413, "Request entity too large"},
		{"templates", "ray.io/v1", "RayCluster", `{"workerGroupSpecs":[` + items(`{"template":{}}`) + `]}`, 403, "it has more than 10000 pod templates"},
		{"a long name of a container", "ray.io/v1", "RayCluster", `{"workerGroupSpecs":[{"template":{"spec":{"containers":[{"name":"` + long + `"}]}}}]}`, 403, "must specify requests.cpu for: ü"},
		{"a long name of a group", "ray.io/v1", "RayCluster", `{"workerGroupSpecs":{"` + long + `":{}}}`, 403, "the workload cannot be measured: spec.workerGroupSpecs.ü"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := admittest.Parse(fmt.Appendf(nil, cluster, test.apiVersion, test.kind))
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.Serve(admittest.Context(t), fleetquota.Plugin)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ar, err := c.Request.Admission()
			if err != nil {
				t.Fatal(err)
			}
			ar.Object.Raw = []byte(strings.Replace(string(ar.Object.Raw), `"spec":{}`, `"spec":`+test.spec, 1))
			at := time.Now()
			got := s.Service.Validate(admittest.Context(t), ar)
			if took := time.Since(at); took > time.Minute {
				t.Errorf("It took %v", took)
			}
			if got.Allowed || got.Result.Code != test.code || !strings.Contains(got.Result.Message, test.want) || len(got.Result.Message) > 1200 || !utf8.ValidString(got.Result.Message) {
				t.Errorf("Got %d with %d bytes: %.300s; want %d: %s", got.Result.Code, len(got.Result.Message), got.Result.Message, test.code, test.want)
			}
		})
	}
}
