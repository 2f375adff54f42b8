package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/pkg/admit/access"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const (
	serviceAccount = "system:serviceaccount:postern-system:postern"
	// reminderBound is longer than the time after which a Postern repeats an Event.
	reminderBound = 90 * time.Second
	// audience is that of the token that the CSI driver of the test needs.
	audience = "vault"
)

// TestServiceAccountSuffices makes Posterns with all plugins send every kind of request that a Postern ever sends. Every
// test fails if the API server denies Postern a permission. This test also fails if the roles grant a permission that
// nothing has used.
func TestServiceAccountSuffices(t *testing.T) {
	ring.Second(t, "an Event is repeated after a minute")
	t.Parallel()
	// The API server's own plugins would refuse the requests for which Postern's plugins look up an object.
	c := suite.Start(t, controlplane.Options{ControllerManager: true, APIServerFlags: []string{
		"--disable-admission-plugins=NamespaceLifecycle,ServiceAccount,Priority,RuntimeClass,PersistentVolumeClaimResize,PodResizeValidator,NodeDeclaredFeatureValidator,ResourceQuota",
	}})
	c.AllowPods(t)
	c.Apply(t, autoscalers+"---"+legacyDefinition)
	w := newWorld(t, c)
	w.letAliceEdit(t)
	ours := w.posternPod(t, "postern")
	// Postern updates a Secret that a manifest has created.
	if _, err := c.Admin.CoreV1().Secrets(e2e.PosternNamespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: e2e.SecretName}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating the Secret: %v", err)
	}
	unreachable, o := suite.AllPlugins(t), suite.AllPlugins(t, moreConfigurations)
	// FleetQuota needs a hub: TestFleetQuota runs it with its roles.
	o.Plugins = without(o.Plugins, "FleetQuota")
	unreachable.Plugins = o.Plugins
	c.Grant(t, "--enable-admission-plugins="+strings.Join(o.Plugins, ","))
	unreachable.Service, unreachable.Front = true, e2e.Loopback(e2e.FreePort(t))
	lost := c.LaunchPostern(t, unreachable)
	o.Service, o.Env = true, []string{"POD_NAME=" + ours}
	o.Flags = append(o.Flags, "--api-server-plugins=none")
	p := c.StartPostern(t, o)

	unused := w.granted(t)
	look := func() error {
		events := c.Audit(t, e2e.AuditEvent.ByPostern)
		unused = slices.DeleteFunc(unused, func(g granted) bool { return slices.ContainsFunc(events, g.isUsedBy) })
		if len(unused) > 0 {
			return fmt.Errorf("nothing has used %v", unused)
		}
		return nil
	}
	lookups := w.lookups(t)
	e2e.Eventually(t, settleBound, "the plugins use their permissions", func(ctx context.Context) error {
		for _, lookup := range lookups {
			lookup(ctx)
		}
		if err := look(); slices.ContainsFunc(unused, func(g granted) bool { return g.role == "postern-plugins" }) {
			return err
		}
		return nil
	})
	e2e.Eventually(t, reminderBound, "an Event is repeated", func(context.Context) error {
		if err := look(); slices.ContainsFunc(unused, func(g granted) bool { return g.Resource == "events" }) {
			return err
		}
		return nil
	})
	p.Stop(t)
	lost.Stop(t)
	// Only a pod of the Deployment may remove what the Deployment has registered.
	c.StartPostern(t, e2e.Options{Service: true, Env: o.Env})
	e2e.Eventually(t, repairBound, "the configurations are removed", configsOf(t, c).gone)
	if err := look(); err != nil {
		t.Error(err)
	}
	for _, e := range c.Audit(t, e2e.AuditEvent.ByPostern) {
		if e.User.Username != serviceAccount {
			t.Errorf("Postern is the user %s, want %s", e.User.Username, serviceAccount)
		}
	}
}

func without(plugins []string, plugin string) []string {
	return slices.DeleteFunc(plugins, func(name string) bool { return name == plugin })
}

// moreConfigurations are configurations of plugins that need permissions for what is off by default.
const moreConfigurations = `- name: PodPreset
  configuration: {legacyAPIGroup: true}
- name: ResourceQuota
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, mode: charge}
`

// autoscalers defines VerticalPodAutoscalers, which InitialResources reads.
const autoscalers = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: verticalpodautoscalers.autoscaling.k8s.io
  annotations: {api-approved.kubernetes.io: https://github.com/kubernetes/kubernetes/pull/63797}
spec:
  group: autoscaling.k8s.io
  scope: Namespaced
  names: {plural: verticalpodautoscalers, singular: verticalpodautoscaler, kind: VerticalPodAutoscaler}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// granted is a permission of a role.
type granted struct {
	role string
	access.Permission
	namespace string
	names     []string
}

// granted returns the permissions of the roles of Postern's service account.
func (w *world) granted(t *testing.T) []granted {
	t.Helper()
	var out []granted
	add := func(role, namespace string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for _, p := range access.Of(access.Rules{rule}) {
				// The API server checks this permission in a match condition, and serves no such resource.
				if p.Group == "deletion.postern.dev" {
					continue
				}
				out = append(out, granted{role, p, namespace, rule.ResourceNames})
			}
		}
	}
	for _, name := range []string{"postern", "postern-plugins"} {
		role, err := w.Admin.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		add(name, "", role.Rules)
	}
	role, err := w.Admin.RbacV1().Roles(e2e.PosternNamespace).Get(t.Context(), "postern", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	add("postern", e2e.PosternNamespace, role.Rules)
	if len(out) < 50 {
		t.Fatalf("Got the permissions %v, want more", out)
	}
	return out
}

// isUsedBy reports whether the API server answered a request that needs the permission. A request in Postern's namespace,
// or for that namespace, needs no permission in the whole cluster.
func (g granted) isUsedBy(e e2e.AuditEvent) bool {
	ref := e.ObjectRef
	if ref.Subresource != "" {
		ref.Resource += "/" + ref.Subresource
	}
	if e.ResponseStatus.Code == http.StatusForbidden || ref.APIGroup != g.Group || ref.Resource != g.Resource {
		return false
	}
	switch {
	case e.Verb == g.Verb:
	case g.Verb == "list" && e.Verb == "watch":
		// Older API servers, and this one in some situations, cannot begin a watch with a list.
	case g.Verb == "create" && e.Verb == "patch" && e.ResponseStatus.Code == http.StatusCreated:
		// Server-side apply of an object that does not exist needs both.
	default:
		return false
	}
	switch {
	case len(g.names) > 0:
		return slices.Contains(g.names, ref.Name)
	case g.namespace != "":
		return ref.Namespace == g.namespace
	default:
		return ref.Namespace != e2e.PosternNamespace && ref.Name != e2e.PosternNamespace
	}
}

// posternPod creates a Deployment in Postern's namespace and returns the name of its pod.
func (w *world) posternPod(t *testing.T, name string) string {
	t.Helper()
	w.deploy(t, e2e.PosternNamespace, name, 1)
	pods, err := w.Admin.CoreV1().Pods(e2e.PosternNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("Got the pods %v, %v, want one", pods, err)
	}
	return pods.Items[0].Name
}

// lookups returns requests for which the plugins look up objects, by a request to the API server where the cache lacks
// the object. The answers do not matter.
func (w *world) lookups(t *testing.T) []func(context.Context) {
	t.Helper()
	pods := w.Admin.CoreV1().Pods(w.namespace)
	w.makeBoundClaim(t)
	w.makeVolume(t)
	// Postern's cache has no variables of a PodPreset as large as this.
	w.Apply(t, strings.NewReplacer("NAMESPACE", w.namespace, "LARGE", strings.Repeat("x", 9<<10)).Replace(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: counted, namespace: NAMESPACE}
spec: {hard: {pods: 1000}}
---
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {name: web, namespace: NAMESPACE}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: settings.postern.dev/v1alpha1
kind: PodPreset
metadata: {name: conflict, namespace: NAMESPACE}
spec: {selector: {matchLabels: {preset: conflict}}, env: [{name: A, value: preset}]}
---
apiVersion: settings.postern.dev/v1alpha1
kind: PodPreset
metadata: {name: large, namespace: NAMESPACE}
spec: {selector: {matchLabels: {preset: large}}, env: [{name: A, value: LARGE}]}
---
apiVersion: settings.k8s.io/v1alpha1
kind: PodPreset
metadata: {name: large-and-old, namespace: NAMESPACE}
spec: {selector: {matchLabels: {preset: large}}, env: [{name: B, value: LARGE}]}
`))
	create := func(name string, change func(*corev1.PodSpec)) *corev1.Pod {
		p := pod(name)
		change(&p.Spec)
		made, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("Creating the pod %s: %v", name, err)
		}
		return made
	}
	owned := func(version, kind string) func(context.Context) {
		return func(ctx context.Context) {
			p := pod("try")
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "unknown", UID: "x", Controller: new(true)}}
			_, _ = pods.Create(ctx, p, dryRun())
		}
	}
	try := func(change func(*corev1.PodSpec)) func(context.Context) {
		return func(ctx context.Context) {
			p := pod("try")
			change(&p.Spec)
			_, _ = pods.Create(ctx, p, dryRun())
		}
	}
	mounting := create("mounting", func(s *corev1.PodSpec) {
		s.NodeName = nodeName
		s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "secrets"}}}}
	})
	elsewhere := create("elsewhere", func(s *corev1.PodSpec) {
		s.NodeName = "unknown"
		s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	})
	elsewhere.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	held := pod("held")
	held.Labels, held.Spec.NodeName = map[string]string{"e2e.postern.dev/gate": "closed"}, nodeName
	if _, err := pods.Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a pod with a gate: %v", err)
	}
	named := 0
	return []func(context.Context){
		func(ctx context.Context) { // NamespaceAutoProvision
			named++
			_ = createSettings(ctx, w.Cluster, fmt.Sprintf("made-%d", named))
		},
		func(ctx context.Context) { // NamespaceExists
			_, _ = w.Admin.CoreV1().ConfigMaps("unknown").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "try"}}, dryRun())
		},
		try(func(s *corev1.PodSpec) { s.ServiceAccountName = "unknown" }),
		try(func(s *corev1.PodSpec) { s.PriorityClassName = "unknown" }),
		try(func(s *corev1.PodSpec) { s.RuntimeClassName = new("unknown") }),
		owned("apps/v1", "ReplicaSet"), // InitialResources
		owned("batch/v1", "Job"),
		w.touches(t)["ownership"],
		forget(func(ctx context.Context) error { // DeletionGate, without the retries of the client
			return w.Admin.CoreV1().RESTClient().Post().MaxRetries(0).Namespace(w.namespace).Resource("pods").Name("held").SubResource("eviction").
				Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "held"}}).Do(ctx).Error()
		}),
		func(ctx context.Context) { // PodPreset
			p := pod("try")
			p.Labels = map[string]string{"preset": "large"}
			_, _ = pods.Create(ctx, p, dryRun())
		},
		func(ctx context.Context) { // ResourceQuota counts, and PodPreset reports a conflict
			p := pod("")
			p.GenerateName, p.Labels = "counted-", map[string]string{"preset": "conflict"}
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "pod"}}
			_, _ = pods.Create(ctx, p, metav1.CreateOptions{})
		},
		forget(func(ctx context.Context) error { // ResourceQuota
			_, err := w.Admin.ResourceV1().ResourceClaims(w.namespace).Create(ctx, &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{
					Name: "devices", Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: mounting.Name, UID: mounting.UID, Controller: new(true)}},
				},
				Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
					{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}},
				}}},
			}, dryRun())
			return err
		}),
		func(ctx context.Context) { // PersistentVolumeClaimResize, before a controller finds out that there is no volume
			if c, err := w.Admin.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, "bound", metav1.GetOptions{}); err == nil {
				c.Status.Phase = corev1.ClaimBound
				_, _ = w.Admin.CoreV1().PersistentVolumeClaims(w.namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
			}
			_ = w.patchClaim(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)(ctx)
		},
		forget(func(ctx context.Context) error { // NodeRestriction
			_, err := w.kubelet.CoreV1().ServiceAccounts(w.namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				Audiences: []string{audience}, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: mounting.Name, UID: mounting.UID},
			}}, metav1.CreateOptions{})
			return err
		}),
		forget(func(ctx context.Context) error { // PodResizeValidator
			_, err := pods.UpdateResize(ctx, elsewhere.Name, elsewhere, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}),
		forget(func(ctx context.Context) error { // PodSecurity
			_, err := w.Admin.CoreV1().Namespaces().Patch(ctx, w.namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}),
		forget(func(ctx context.Context) error { // DenyEscalatingExec and DenyExecOnPrivileged
			return connection{"exec", http.MethodPost, w.Admin}.send(ctx, w.namespace, mounting.Name)
		}),
	}
}

// forget returns a func that sends a request and ignores the answer.
func forget(request func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) { _ = request(ctx) }
}

// makeVolume creates a claim that is bound to a volume whose CSI driver needs a token.
func (w *world) makeVolume(t *testing.T) {
	t.Helper()
	const driver = "csi.example.com"
	v := volume("secrets")
	v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "x"}}
	_, err1 := w.Admin.CoreV1().PersistentVolumes().Create(t.Context(), v, metav1.CreateOptions{})
	claimed := claim("secrets")
	claimed.Spec.VolumeName = v.Name
	_, err2 := w.Admin.CoreV1().PersistentVolumeClaims(w.namespace).Create(t.Context(), claimed, metav1.CreateOptions{})
	_, err3 := w.Admin.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: audience}}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatalf("Making a volume: %v", err)
	}
}

func TestServiceAccountMayDoNoMore(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	const group = "admissionregistration.k8s.io"
	for _, test := range []struct {
		verb, group, resource, namespace, name string
		want                                   bool
	}{
		// The allowed requests show that the access reviews themselves are correct.
		{"get", "", "secrets", e2e.PosternNamespace, e2e.SecretName, true},
		{"patch", group, "mutatingwebhookconfigurations", "", "postern-pods", true},
		{"get", "", "secrets", e2e.PosternNamespace, "another", false},
		{"list", "", "secrets", e2e.PosternNamespace, "", false},
		{"delete", "", "secrets", e2e.PosternNamespace, e2e.SecretName, false},
		{"get", "", "secrets", "kube-system", e2e.SecretName, false},
		{"patch", group, "mutatingwebhookconfigurations", "", "another", false},
		{"delete", group, "validatingwebhookconfigurations", "", "another", false},
		{"create", group, "validatingwebhookconfigurations", "", "", false},
		{"create", "", "pods", e2e.PosternNamespace, "", false},
		{"delete", "", "namespaces", "", e2e.PosternNamespace, false},
		{"create", "rbac.authorization.k8s.io", "clusterrolebindings", "", "", false},
		{"bind", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin", false},
		{"impersonate", "", "users", "", "admin", false},
	} {
		review, err := c.Admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: serviceAccount, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:postern-system", "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: test.verb, Group: test.group, Resource: test.resource, Namespace: test.namespace, Name: test.name,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("Asking for access: %v", err)
		}
		if got := review.Status.Allowed; got != test.want {
			t.Errorf("May it %s %s %q in namespace %q? %t, want %t", test.verb, test.resource, test.name, test.namespace, got, test.want)
		}
	}
}
