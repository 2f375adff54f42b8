package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/internal/ring"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/walkthrough"
	"github.com/postern-dev/postern/test/e2e"
)

// restrictedPolicy is a policy that alice may use, in all namespaces. She may also do everything with pods, and create and
// change policies, which does not let her use them.
const restrictedPolicy = `
apiVersion: policy.postern.dev/v1
kind: PodSecurityPolicy
metadata: {name: restricted}
spec:
  allowPrivilegeEscalation: false
  volumes: [configMap, secret, emptyDir]
  seLinux: {rule: RunAsAny}
  runAsUser: {rule: MustRunAsNonRoot}
  supplementalGroups: {rule: RunAsAny}
  fsGroup: {rule: RunAsAny}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: alice}
rules:
- {apiGroups: [policy.postern.dev], resources: [podsecuritypolicies], resourceNames: [restricted], verbs: [use]}
- {apiGroups: [policy.postern.dev], resources: [podsecuritypolicies], verbs: [create, update, get]}
- {apiGroups: [""], resources: [pods, pods/ephemeralcontainers], verbs: [create, get, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: alice}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`

func withPolicies(flags ...string) e2e.Options {
	return e2e.Options{Plugins: []string{"PodSecurityPolicy"}, Flags: flags}
}

// TestPodSecurityPolicy has alice create a pod, and then try to get around the only policy that she may use.
func TestPodSecurityPolicy(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	c.Apply(t, restrictedPolicy)
	ns := c.Namespace(t)
	c.StartPostern(t, withPolicies())
	pods := c.Client(t, controlplane.Alice).CoreV1().Pods(ns)
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		made, err := pods.Create(ctx, pod("called"), dryRun())
		if err == nil && made.Annotations["kubernetes.io/psp"] != "restricted" {
			err = fmt.Errorf("the annotations are %v", made.Annotations)
		}
		return err
	})
	made, err := pods.Create(t.Context(), pod("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a pod: %v", err)
	}
	if sc := made.Spec.Containers[0].SecurityContext; sc == nil || sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot || sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		t.Errorf("The container has the security context %v, want the defaults of the policy", sc)
	}
	privileged := &corev1.SecurityContext{Privileged: new(true), RunAsNonRoot: new(true)}
	create := func(change func(*corev1.Pod)) func(context.Context) error {
		return func(ctx context.Context) error {
			p := pod("attempt")
			change(p)
			_, err := pods.Create(ctx, p, metav1.CreateOptions{})
			return err
		}
	}
	patch := func(text string, subresources ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := pods.Patch(ctx, "web", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
			return err
		}
	}
	for name, tc := range map[string]struct {
		do   func(context.Context) error
		want string // a part of the denial, or "" if it must succeed
	}{
		"a privileged container": {create(func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = privileged }), "spec.containers[0].securityContext.privileged: Invalid value: true"},
		"a privileged init container": {create(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", SecurityContext: privileged}}
		}), "spec.initContainers[0].securityContext.privileged: Invalid value: true"},
		"the network of the host": {create(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), "Host network is not allowed to be used"},
		"the annotation of another policy": {create(func(p *corev1.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/psp": "any-pod"}
			p.Spec.HostPID = true
		}), "Host PID is not allowed to be used"},
		"a volume of a newer type": {create(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "x", PullPolicy: corev1.PullAlways}}}}
		}), "unknown volume type"},
		"an ephemeral container": {
			patch(`{"spec":{"ephemeralContainers":[{"name":"evil","image":"sh","securityContext":{"privileged":true}}]}}`, "ephemeralcontainers"),
			"spec.ephemeralContainers[0].securityContext.privileged: Invalid value: true",
		},
		"an ephemeral container for debugging": {patch(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"sh"}]}}`, "ephemeralcontainers"), ""},
		"an update of a label":                 {patch(`{"metadata":{"labels":{"a":"b"}}}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.do(t.Context())
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("Got %v", err)
			case tc.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurityPolicy: unable to admit pod: ") || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("Got %v, want a denial with %q", err, tc.want)
			}
		})
	}
	t.Run("the debugger has the defaults", func(t *testing.T) {
		got, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || len(got.Spec.EphemeralContainers) != 1 {
			t.Fatalf("Got %v, %v", got, err)
		}
		if sc := got.Spec.EphemeralContainers[0].SecurityContext; sc == nil || sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot {
			t.Errorf("The ephemeral container has the security context %v, want the defaults of the policy", sc)
		}
	})
	t.Run("an update of a pod that violates the policy", func(t *testing.T) {
		c.AllowPods(t)
		own := pod("admins")
		own.Spec.HostNetwork = true
		e2e.Eventually(t, settleBound, "the admin may use another policy", func(ctx context.Context) error {
			_, err := c.Admin.CoreV1().Pods(ns).Create(ctx, own, metav1.CreateOptions{})
			return err
		})
		// The pod has the default service account, which may use the policy of this pod, so alice may update it.
		e2e.Eventually(t, settleBound, "alice may update it while a policy admits it", func(ctx context.Context) error {
			_, err := pods.Patch(ctx, "admins", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		})
		if err := c.Dynamic(t, controlplane.Admin).Resource(policyv1.GroupVersionResource()).Delete(t.Context(), "any-pod", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		// No waiting: a cache that still has the policy admits nothing.
		_, err := pods.Patch(t.Context(), "admins", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"app","image":"evil"}]}}`), metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "Host network is not allowed to be used") {
			t.Errorf("Updating it without a policy returned %v, want a denial", err)
		}
	})
	t.Run("a policy of her own, in the same second", func(t *testing.T) {
		policies := c.Dynamic(t, controlplane.Alice).Resource(policyv1.GroupVersionResource())
		own := policyWith(t, "of-alice", `{privileged: true, hostNetwork: true}`)
		if _, err := policies.Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
			t.Fatalf("Creating a policy: %v", err)
		}
		t.Cleanup(func() {
			_ = c.Dynamic(t, controlplane.Admin).Resource(policyv1.GroupVersionResource()).Delete(context.WithoutCancel(t.Context()), "of-alice", metav1.DeleteOptions{})
		})
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			err := create(func(p *corev1.Pod) { p.Spec.HostNetwork = true })(t.Context())
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "Host network is not allowed to be used") {
				t.Fatalf("Got %v, want a denial: she may create the policy, but not use it", err)
			}
		}
	})
	t.Run("a policy with a bad annotation", func(t *testing.T) {
		bad := policyWith(t, "bad", `{}`)
		bad.SetAnnotations(map[string]string{"seccomp.security.alpha.kubernetes.io/defaultProfileName": "foo"})
		_, err := c.Dynamic(t, controlplane.Alice).Resource(policyv1.GroupVersionResource()).Create(t.Context(), bad, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must be a valid seccomp profile") {
			t.Errorf("Got %v, want it to be invalid", err)
		}
	})
}

// TestWithoutItsDefinitionPosternIsNotReady starts a Postern in a cluster without the CustomResourceDefinition of a plugin,
// and then applies it.
func TestWithoutItsDefinitionPosternIsNotReady(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	for plugin, resource := range map[string]string{"PodSecurityPolicy": "podsecuritypolicies.policy.postern.dev", "PodPreset": "podpresets.settings.postern.dev"} {
		t.Run(plugin, func(t *testing.T) { checkMissingDefinition(t, c, plugin, resource) })
	}
}

func checkMissingDefinition(t *testing.T, c *e2e.Cluster, plugin, resource string) {
	t.Helper()
	file, _, _ := strings.Cut(resource, ".")
	definition := filepath.Join(c.Module(), "installer", "crds", file+".yaml")
	kubectl := func(ctx context.Context, args ...string) {
		t.Helper()
		if out, err := c.Kubectl(ctx, controlplane.Admin, append(args, "-f", definition)...).CombinedOutput(); err != nil {
			t.Errorf("kubectl %q: %v: %s", args, err, out)
		}
	}
	kubectl(t.Context(), "delete")
	t.Cleanup(func() { kubectl(context.WithoutCancel(t.Context()), "apply") })
	missing := "The CustomResourceDefinition " + resource + " is missing; those of Postern are in installer/crds"
	p := c.LaunchPostern(t, e2e.Options{Plugins: []string{plugin}})
	e2e.Eventually(t, settleBound, "Postern says what is missing", func(ctx context.Context) error {
		if text := p.Readyz(ctx); !strings.Contains(text, "[-]informers failed: "+missing) {
			return fmt.Errorf("it says %s", text)
		}
		return nil
	})
	time.Sleep(calm)
	if err := p.Ready(t.Context()); err == nil {
		t.Error("Postern is ready without the definition")
	}
	if n := strings.Count(p.Log(), missing); n != 1 {
		t.Errorf("The log says %d times what is missing, want once", n)
	}
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, "could not find the requested resource") {
			t.Errorf("The log also says %s", line)
		}
	}
	kubectl(t.Context(), "apply")
	p.AwaitReady(t)
	p.AwaitRegistered(t)
	p.Stop(t)
}

// TestMigratingFromPSP executes docs/migrating-from-psp.md: it writes the files in the document, runs each command, and
// compares what the command prints.
func TestMigratingFromPSP(t *testing.T) {
	t.Parallel()
	c := suite.Start(t, controlplane.Options{ControllerManager: true})
	if out, err := c.Kubectl(t.Context(), controlplane.Admin, "delete", "-f", filepath.Join(c.Module(), "installer", "crds", "podsecuritypolicies.yaml")).CombinedOutput(); err != nil {
		t.Fatalf("Removing the definition: %v: %s", err, out)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "installer"), os.DirFS(filepath.Join(c.Module(), "installer"))); err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, b := range walkthrough.Blocks(page(t, c, "migrating-from-psp.md")) {
		if b.File != "" {
			if err := os.WriteFile(filepath.Join(dir, b.File), []byte(b.Text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if b.Kind != "console" {
			continue
		}
		for _, step := range b.Steps() {
			commands++
			walk(t, c, dir, step.Command, words(step.Prints))
			if strings.HasPrefix(step.Command, "kubectl apply -f installer/postern.yaml") {
				startDeployed(t, c)
			}
		}
	}
	if commands < 15 {
		t.Errorf("The document has %d commands", commands)
	}
}

// walk runs a command of the document until it prints what the document says. Permissions take effect a moment after
// they are granted. Warnings of kubectl are not in the document.
func walk(t *testing.T, c *e2e.Cluster, dir, command, want string) {
	t.Helper()
	e2e.Eventually(t, settleBound, command, func(context.Context) error {
		got, err := c.Shell(t, dir, command)
		if got = words(warning.ReplaceAllString(got, "")); got != want {
			return fmt.Errorf("it prints\n%s\nwant\n%s", got, want)
		}
		if err != nil && !strings.HasPrefix(want, "Error from server (Forbidden)") && want != "no" {
			return err
		}
		return nil
	})
}

// startDeployed starts a Postern with the arguments of the Deployment, because the cluster has no nodes.
func startDeployed(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	d, err := c.Admin.AppsV1().Deployments(e2e.PosternNamespace).Get(t.Context(), "postern", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("Reading the Deployment: %v", err)
	}
	args := d.Spec.Template.Spec.Containers[0].Args
	named := slices.IndexFunc(args, func(arg string) bool { return arg == "--enable-admission-plugins=PodSecurityPolicy" })
	if named < 0 {
		t.Fatalf("The arguments %q do not enable the plugin", args)
	}
	startWithPolicies(t, c, slices.Delete(slices.Clone(args), named, named+1)...)
}

// startWithPolicies starts a Postern and waits until the API server calls it. The cluster needs a policy.
func startWithPolicies(t *testing.T, c *e2e.Cluster, flags ...string) {
	t.Helper()
	c.StartPostern(t, withPolicies(flags...))
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		made, err := c.Admin.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod("called"), dryRun())
		if err == nil && made.Annotations["kubernetes.io/psp"] == "" {
			err = errors.New("it does not")
		}
		return err
	})
}

// words returns the text with every sequence of white space replaced by one blank.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

var warning = regexp.MustCompile(`(?m)^Warning: .*$`)

// page returns the text of a page in docs.
func page(t *testing.T, c *e2e.Cluster, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Module(), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDefaultAppArmorProfileWithoutAWarning has a policy with a default profile. The API server warns of a pod that has it only as
// an annotation.
func TestDefaultAppArmorProfileWithoutAWarning(t *testing.T) {
	ring.Second(t, "two starts of Postern for one field")
	t.Parallel()
	c := suite.Lend(t)
	c.Apply(t, `apiVersion: policy.postern.dev/v1
kind: PodSecurityPolicy
metadata: {name: armored, annotations: {apparmor.security.beta.kubernetes.io/defaultProfileName: runtime/default}}
spec: {seLinux: {rule: RunAsAny}, runAsUser: {rule: RunAsAny}, supplementalGroups: {rule: RunAsAny}, fsGroup: {rule: RunAsAny}, volumes: ['*']}
`)
	ns := c.Namespace(t)
	w := warningsOf(t, c)
	for _, tc := range []struct {
		fields bool
		want   []string
	}{
		{false, []string{`metadata.annotations[container.apparmor.security.beta.kubernetes.io/app]: deprecated since v1.30; use the "appArmorProfile" field instead`}},
		{true, nil},
	} {
		p := c.StartPostern(t, withPolicies(configured(t, fmt.Sprintf("- {name: PodSecurityPolicy, configuration: {appArmorFields: %t}}", tc.fields))))
		e2e.Eventually(t, settleBound, "a pod gets the default", func(ctx context.Context) error {
			var made *corev1.Pod
			got, err := w.of(func(client kubernetes.Interface) (err error) {
				made, err = client.CoreV1().Pods(ns).Create(ctx, pod("web"), dryRun())
				return err
			})
			if err != nil {
				return err
			}
			sc := made.Spec.Containers[0].SecurityContext
			if sc == nil || sc.AppArmorProfile == nil || sc.AppArmorProfile.Type != corev1.AppArmorProfileTypeRuntimeDefault || !slices.Equal(got, tc.want) {
				return fmt.Errorf("with the fields %t, got %v and the warnings %q, want %q", tc.fields, sc, got, tc.want)
			}
			return nil
		})
		p.Stop(t)
	}
}
