package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// oldObjects are objects of an old cluster: each one has an owner and a finalizer of it, and the roles and bindings have
// versions that the new cluster does not serve. NAMESPACE is replaced.
const oldObjects = `apiVersion: policy/v1beta1
kind: PodSecurityPolicy
metadata: {name: migrated, uid: 11111111-0000-0000-0000-000000000000, ownerReferences: [CLUSTER], finalizers: [example.com/gone]}
spec: {seLinux: {rule: RunAsAny}, runAsUser: {rule: RunAsAny}, supplementalGroups: {rule: RunAsAny}, fsGroup: {rule: RunAsAny}}
---
apiVersion: settings.k8s.io/v1alpha1
kind: PodPreset
metadata: {name: migrated, namespace: NAMESPACE, ownerReferences: [OWNER], finalizers: [example.com/gone]}
spec: {selector: {}, env: [{name: A, value: b}]}
---
apiVersion: rbac.authorization.k8s.io/v1beta1
kind: ClusterRole
metadata: {name: migrated, ownerReferences: [CLUSTER], finalizers: [example.com/gone]}
rules: [{apiGroups: [policy], resources: [podsecuritypolicies], resourceNames: [migrated], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1alpha1
kind: ClusterRoleBinding
metadata: {name: migrated, ownerReferences: [CLUSTER], finalizers: [example.com/gone]}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: migrated}
subjects: [{apiVersion: rbac.authorization.k8s.io/v1alpha1, kind: User, name: "user:of:policies"}, {apiVersion: v1, kind: ServiceAccount, name: default, namespace: NAMESPACE}]
---
apiVersion: rbac.authorization.k8s.io/v1alpha1
kind: Role
metadata: {name: migrated, namespace: NAMESPACE, ownerReferences: [OWNER], finalizers: [example.com/gone]}
rules: [{apiGroups: [settings.k8s.io], resources: [podpresets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1beta1
kind: RoleBinding
metadata: {name: migrated, namespace: NAMESPACE, ownerReferences: [OWNER], finalizers: [example.com/gone]}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: migrated}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "readers:of:presets"}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: migrated, namespace: NAMESPACE, ownerReferences: [OWNER], finalizers: [example.com/gone]}
`

// collected is an object that the garbage collector deletes.
const collected = `apiVersion: v1
kind: ConfigMap
metadata: {name: collected, namespace: NAMESPACE, ownerReferences: [OWNER]}
`

// TestMigratedObjectsStay applies what postern migrate makes of objects that have owners and finalizers of an old cluster,
// while the garbage collector of the new cluster runs.
func TestMigratedObjectsStay(t *testing.T) {
	ring.Second(t, "the garbage collector gets a minute")
	t.Parallel()
	c := suite.Lend(t)
	dir := t.TempDir()
	fill := strings.NewReplacer("NAMESPACE", c.Namespace(t),
		"OWNER", "{apiVersion: v1, kind: ConfigMap, name: gone, uid: 22222222-0000-0000-0000-000000000000}",
		"CLUSTER", "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: gone, uid: 33333333-0000-0000-0000-000000000000}")
	for name, text := range map[string]string{"old.yaml": oldObjects, "collected.yaml": collected} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(fill.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(command, want string) {
		t.Helper()
		if got, err := c.Shell(t, dir, command); err != nil || strings.TrimSpace(got) != want {
			t.Fatalf("%s: got %v and\n%s\nwant\n%s", command, err, got, want)
		}
	}
	run("set -o pipefail; postern migrate psp < old.yaml 2> warnings | postern migrate podpreset > new.yaml", "")
	run("grep -c 'dropped metadata.finalizers, metadata.ownerReferences' warnings", "7")
	run("grep -c 'postern migrate podpreset converts it' warnings", "1")
	t.Cleanup(func() {
		_ = c.Kubectl(context.WithoutCancel(t.Context()), controlplane.Admin, "delete", "--ignore-not-found", "--wait=false", "-f", filepath.Join(dir, "new.yaml")).Run()
	})
	run("kubectl apply --validate=strict -f new.yaml -f collected.yaml > applied", "")
	can := func(command string) {
		t.Helper()
		e2e.Eventually(t, settleBound, command, func(context.Context) error {
			if got, err := c.Shell(t, dir, "kubectl auth can-i --quiet "+command); err != nil {
				return fmt.Errorf("%w: %s", err, got)
			}
			return nil
		})
	}
	can("use podsecuritypolicies.policy.postern.dev/migrated --as=user:of:policies")
	can(fill.Replace("use podsecuritypolicies.policy.postern.dev/migrated --as=system:serviceaccount:NAMESPACE:default"))
	can(fill.Replace("get podpresets.settings.postern.dev -n NAMESPACE --as=somebody --as-group=readers:of:presets"))
	e2e.Throughout(t, time.Minute, "the objects stay", func(context.Context) error {
		got, err := c.Shell(t, dir, "kubectl get -f new.yaml -o name")
		if n := strings.Count(got, "/migrated\n"); err != nil || n != 7 {
			return errors.Join(err, errors.New(got))
		}
		return nil
	})
	run("kubectl get --ignore-not-found -f collected.yaml -o name", "")
	run("kubectl delete --timeout=30s -f new.yaml > deleted", "")
	run("kubectl get --ignore-not-found -f new.yaml -o name", "")
}
