package ownerreferencespermissionenforcement

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestOwners checks the table that replaces the API server's discovery.
func TestOwners(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range owners() {
		gvk := schema.FromAPIVersionAndKind(o.apiVersion, o.kind)
		if !scheme.Scheme.Recognizes(gvk) {
			t.Errorf("There is no %v", gvk)
		}
		if want, _ := meta.UnsafeGuessKindToResource(gvk); want.Resource != o.resource {
			t.Errorf("Got resource %s for %s, want %s", o.resource, o.kind, want.Resource)
		}
		if want := o.kind == "Node"; o.cluster != want {
			t.Errorf("Got %s outside of namespaces %t, want %t", o.kind, o.cluster, want)
		}
		if seen[o.kind] {
			t.Errorf("There are two kinds %s: which of them is in no namespace could not be told apart", o.kind)
		}
		seen[o.kind] = true
	}
}

func TestResources(t *testing.T) {
	const want = "{'v1': {'Endpoints': 'endpoints', 'Node': 'nodes', 'Pod': 'pods', 'ReplicationController': 'replicationcontrollers', 'Service': 'services'}, " +
		"'apps/v1': {'DaemonSet': 'daemonsets', 'Deployment': 'deployments', 'ReplicaSet': 'replicasets', 'StatefulSet': 'statefulsets'}, " +
		"'batch/v1': {'CronJob': 'cronjobs', 'Job': 'jobs'}, 'networking.k8s.io/v1': {'Ingress': 'ingresses'}}"
	if got := resources(); got != want {
		t.Errorf("Got\n%s, want\n%s", got, want)
	}
	if got, want := clusterScoped(), "['Node']"; got != want {
		t.Errorf("Got %s, want %s", got, want)
	}
}
