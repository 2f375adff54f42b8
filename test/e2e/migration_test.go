package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/walkthrough"
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

// accounts are objects of the old cluster, beside those of the page. The user builder has only the permissions of the Role. The
// user operator has those of edit, to which the first ClusterRole is aggregated. The others are not related to policies.
const accounts = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: privileged-for-editors, labels: {rbac.authorization.k8s.io/aggregate-to-edit: "true"}}
rules: [{apiGroups: [policy], resources: [podsecuritypolicies], resourceNames: [privileged], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: builder, namespace: team}
rules:
- {apiGroups: [policy], resources: [podsecuritypolicies], resourceNames: [restricted], verbs: [use]}
- {apiGroups: [""], resources: [pods], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: builder, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: builder}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: builder}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: everything}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everything}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: owner}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
`

// TestMigrationOfAnExport runs the commands of docs/migrating-from-psp.md with the roles and bindings that an API server
// exports, among them all that it made itself, and applies the result to another API server.
func TestMigrationOfAnExport(t *testing.T) {
	ring.Second(t, "two control planes with controller managers")
	t.Parallel()
	old, fresh := suite.Start(t, controlplane.Options{ControllerManager: true}), suite.Start(t, controlplane.Options{ControllerManager: true})
	dir, doc := t.TempDir(), page(t, fresh, "migrating-from-psp.md")
	pageFile := walkthrough.Blocks(doc)[0]
	end := strings.LastIndex(pageFile.Text, "kind: PodSecurityPolicy\n")
	end += strings.Index(pageFile.Text[end:], "---\n")
	for name, text := range map[string]string{
		"policies.yaml": pageFile.Text[:end],
		// No API server serves v1beta1 today.
		"roles.yaml": strings.ReplaceAll(pageFile.Text[end:], "rbac.authorization.k8s.io/v1beta1", "rbac.authorization.k8s.io/v1") + accounts,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	export := regexp.MustCompile("kubectl get podsecuritypolicies,([a-z,]+ -A -o yaml) > old.yaml").FindStringSubmatch(doc)
	migrate := regexp.MustCompile(`(?m)^\$ (postern migrate psp .*)$`).FindStringSubmatch(doc)
	if export == nil || migrate == nil {
		t.Fatalf("The page has the commands %q and %q", export, migrate)
	}
	run := func(c *e2e.Cluster, command string) string {
		t.Helper()
		got, err := c.Shell(t, dir, command)
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, got)
		}
		return got
	}
	run(old, "kubectl create namespace team && kubectl apply -f roles.yaml")
	walk(t, old, dir, "kubectl get clusterrole edit -o yaml | grep podsecuritypolicies", "- podsecuritypolicies")
	run(old, "(cat policies.yaml; echo ---; kubectl get "+export[1]+") > old.yaml")
	made := strings.TrimSpace(run(old, "grep -c 'kubernetes.io/bootstrapping: rbac-defaults' old.yaml"))
	if n, err := strconv.Atoi(made); err != nil || n < 100 {
		t.Errorf("The export has %s roles and bindings that the API server made, want at least 100", made)
	}
	warnings := regexp.MustCompile("^warning: document 3: ClusterRole everything: left out, because it allows podsecuritypolicies only by wildcards\n" +
		"warning: document 3: ClusterRoleBinding everything: left out, because its ClusterRole everything allows podsecuritypolicies only by wildcards\n" +
		"warning: left out what is not related to podsecuritypolicies: [0-9]+ ClusterRole, [0-9]+ ClusterRoleBinding, [0-9]+ Role, [0-9]+ RoleBinding\n$")
	if got := run(old, migrate[1]); !warnings.MatchString(got) {
		t.Errorf("The migration prints\n%s\nwant\n%s", got, warnings)
	}
	run(fresh, "kubectl create namespace team")
	applied := strings.Join([]string{
		"podsecuritypolicy.policy.postern.dev/privileged", "podsecuritypolicy.policy.postern.dev/restricted",
		"clusterrole.rbac.authorization.k8s.io/privileged-for-editors", "clusterrole.rbac.authorization.k8s.io/psp-restricted",
		"role.rbac.authorization.k8s.io/builder", "clusterrolebinding.rbac.authorization.k8s.io/psp-restricted",
		"rolebinding.rbac.authorization.k8s.io/builder", "rolebinding.rbac.authorization.k8s.io/operator", "",
	}, " created\n")
	if got := run(fresh, "kubectl apply -f new.yaml"); got != applied {
		t.Errorf("Applying prints\n%s\nwant\n%s", got, applied)
	}
	startWithPolicies(t, fresh)
	walk(t, fresh, dir, "kubectl run web -n team --image=nginx --as=builder", "pod/web created")
	walk(t, fresh, dir, `kubectl get pod web -n team -o jsonpath='{.metadata.annotations.kubernetes\.io/psp}'`, "restricted")
	got, err := fresh.Shell(t, dir, "kubectl run root -n team --image=nginx --privileged --as=builder")
	if err == nil || !strings.Contains(got, "PodSecurityPolicy: unable to admit pod: ") {
		t.Errorf("Got %v and %q for a privileged pod, want a denial", err, got)
	}
	walk(t, fresh, dir, "kubectl run root -n team --image=nginx --privileged --as=operator", "pod/root created")
}
