package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

const enforceLabel = "pod-security.kubernetes.io/enforce"

// podSecurity returns the options of a Postern that runs PodSecurity with the given fields of its configuration.
func podSecurity(t *testing.T, fields string) e2e.Options {
	t.Helper()
	plugins := "- {name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration" + fields + "}}"
	return e2e.Options{Plugins: []string{"PodSecurity"}, Flags: []string{configured(t, plugins)}}
}

// withoutPodSecurity starts a control plane whose API server does not run PodSecurity itself.
func withoutPodSecurity(t *testing.T) *e2e.Cluster {
	t.Helper()
	return suite.Start(t, controlplane.Options{APIServerFlags: []string{"--disable-admission-plugins=PodSecurity"}})
}

// labelled creates a namespace with the level restricted, unless other labels are given.
func labelled(t *testing.T, c *e2e.Cluster, labels ...string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "levels-", Labels: map[string]string{}}}
	if len(labels) == 0 {
		labels = []string{enforceLabel, "restricted"}
	}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	ns, err := c.Admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a namespace with the labels %q: %v", labels, err)
	}
	return ns.Name
}

func setLabel(t *testing.T, c *e2e.Cluster, namespace, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, enforceLabel, value)
	if _, err := c.Admin.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatalf("Labelling namespace %s: %v", namespace, err)
	}
}

// startPodSecurity starts Postern and waits until it denies a pod in a restricted namespace.
func startPodSecurity(t *testing.T, c *e2e.Cluster, o e2e.Options) *e2e.Postern {
	t.Helper()
	p := c.StartPostern(t, o)
	ns := labelled(t, c)
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		_, err := c.Admin.CoreV1().Pods(ns).Create(ctx, pod("called"), dryRun())
		return isDenied(err)
	})
	return p
}

// isDenied returns nil if PodSecurity in Postern has denied the request.
func isDenied(err error) error {
	const want = `admission webhook "pods.postern.dev" denied the request: pods `
	if apierrors.IsForbidden(err) && strings.HasPrefix(err.Error(), want) && strings.Contains(err.Error(), "violates PodSecurity ") {
		return nil
	}
	return fmt.Errorf("got %w, want a denial of PodSecurity", err)
}

// restricted returns a pod that conforms to the level restricted.
func restricted(name string) *corev1.Pod {
	p, yes, no := pod(name), true, false
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	return p
}

// TestPodSecurity tries to get a pod past the level restricted.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	c := withoutPodSecurity(t)
	p := startPodSecurity(t, c, podSecurity(t, ""))
	t.Run("a well-behaved pod passes", func(t *testing.T) {
		if _, err := c.Admin.CoreV1().Pods(labelled(t, c)).Create(t.Context(), restricted("web"), metav1.CreateOptions{}); err != nil {
			t.Errorf("Creating a pod: %v", err)
		}
	})
	ns := labelled(t, c)
	for name, change := range violations() {
		t.Run(name, func(t *testing.T) {
			p := restricted("web")
			change(p)
			_, err := c.Admin.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{})
			if err := isDenied(err); err != nil {
				t.Errorf("Creating a pod: %v", err)
			}
		})
	}
	t.Run("a generated name", func(t *testing.T) {
		_, err := c.Admin.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}, Spec: pod("").Spec}, metav1.CreateOptions{})
		if err := isDenied(err); err != nil {
			t.Errorf("Creating a pod: %v", err)
		}
	})
	t.Run("server-side apply", func(t *testing.T) {
		apply := []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "app", "image": "app"}]}}`)
		_, err := c.Admin.CoreV1().Pods(ns).Patch(t.Context(), "web", types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "tester"})
		if err := isDenied(err); err != nil {
			t.Errorf("Applying a pod: %v", err)
		}
	})
	t.Run("a webhook that is called after Postern", func(t *testing.T) {
		ns := labelled(t, c)
		later := e2e.StartWebhook(t, `[{"op": "replace", "path": "/spec/containers/0/securityContext", "value": {"privileged": true}}]`)
		c.Register(t, later, "zz-privileged", ns, admissionregistrationv1.IfNeededReinvocationPolicy)
		awaitWebhook(t, c, later, ns)
		_, err := c.Admin.CoreV1().Pods(ns).Create(t.Context(), restricted("web"), metav1.CreateOptions{})
		if err := isDenied(err); err != nil {
			t.Errorf("Creating a pod: %v", err)
		}
	})
	t.Run("ephemeral containers", func(t *testing.T) { checkEphemeral(t, c) })
	t.Run("a namespace that is labelled later", func(t *testing.T) { checkLabelledLater(t, c) })
	t.Run("a namespace that is newer than the cache", func(t *testing.T) {
		for range 20 {
			_, err := c.Admin.CoreV1().Pods(labelled(t, c)).Create(t.Context(), pod("web"), metav1.CreateOptions{})
			if err := isDenied(err); err != nil {
				t.Fatalf("Creating a pod: %v", err)
			}
		}
	})
	t.Run("the metrics of the library", func(t *testing.T) {
		if n := p.Metric(t, "pod_security_evaluations_total", `decision="deny"`, `mode="enforce"`, `policy_level="restricted"`, `resource="pod"`); n < 20 {
			t.Errorf("There were %v denials, want more", n)
		}
	})
}

// violations returns changes of a pod that the level restricted does not allow.
func violations() map[string]func(*corev1.Pod) {
	yes, root, unmasked := true, int64(0), corev1.UnmaskedProcMount
	container := func(change func(*corev1.SecurityContext)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(p.Spec.Containers[0].SecurityContext) }
	}
	return map[string]func(*corev1.Pod){
		"a privileged pod": container(func(s *corev1.SecurityContext) { s.Privileged, s.AllowPrivilegeEscalation = &yes, &yes }),
		"a pod as root":    container(func(s *corev1.SecurityContext) { s.RunAsUser = &root }),
		"capabilities":     container(func(s *corev1.SecurityContext) { s.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"} }),
		"no seccomp": container(func(s *corev1.SecurityContext) {
			s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}),
		"a proc mount": func(p *corev1.Pod) {
			no := false
			p.Spec.HostUsers, p.Spec.Containers[0].SecurityContext.ProcMount = &no, &unmasked
			p.Spec.Containers[0].SecurityContext.RunAsNonRoot = &no
		},
		"the network of the node":   func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"the processes of the node": func(p *corev1.Pod) { p.Spec.HostPID = true },
		"a folder of the node": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
		"an init container": func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "first"}} },
		"a second container": func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b", Image: "b"})
		},
		"a mirror pod": func(p *corev1.Pod) {
			p.Annotations, p.Spec.NodeName, p.Spec.HostPID = map[string]string{corev1.MirrorPodAnnotationKey: "x"}, "anywhere", true
		},
		"an AppArmor profile": func(p *corev1.Pod) {
			p.Spec.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		},
		"an unsafe sysctl": func(p *corev1.Pod) {
			p.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}
		},
		"a privileged Windows pod": func(p *corev1.Pod) {
			p.Spec.OS, p.Spec.HostNetwork = &corev1.PodOS{Name: corev1.Windows}, true
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes, WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: &yes}}
			p.Spec.Containers[0].SecurityContext = nil
		},
	}
}

func checkEphemeral(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	pods := c.Admin.CoreV1().Pods(labelled(t, c))
	made, err := pods.Create(t.Context(), restricted("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a pod: %v", err)
	}
	debug := made.DeepCopy()
	debug.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "debug"}}}
	_, err = pods.UpdateEphemeralContainers(t.Context(), "web", debug, metav1.UpdateOptions{})
	if err := isDenied(err); err != nil {
		t.Errorf("Adding an ephemeral container: %v", err)
	}
	debug.Spec.EphemeralContainers[0].SecurityContext = made.Spec.Containers[0].SecurityContext
	if _, err := pods.UpdateEphemeralContainers(t.Context(), "web", debug, metav1.UpdateOptions{}); err != nil {
		t.Errorf("Adding an ephemeral container that conforms: %v", err)
	}
}

// checkLabelledLater checks pods of a namespace whose level is raised, and lowered again.
func checkLabelledLater(t *testing.T, c *e2e.Cluster) {
	t.Helper()
	ns := labelled(t, c, enforceLabel, "privileged")
	pods := c.Admin.CoreV1().Pods(ns)
	if _, err := pods.Create(t.Context(), pod("old"), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Creating a pod before the label: %v", err)
	}
	setLabel(t, c, ns, `"restricted"`)
	e2e.Eventually(t, settleBound, "the label counts", func(ctx context.Context) error {
		_, err := pods.Create(ctx, pod("new"), dryRun())
		return isDenied(err)
	})
	for name, patch := range map[string]string{
		"another image":                   `{"spec": {"containers": [{"name": "app", "image": "other"}]}}`,
		"another image and another label": `{"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "other"}]}}`,
	} {
		_, err := pods.Patch(t.Context(), "old", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		if err := isDenied(err); err != nil {
			t.Errorf("Setting %s: %v", name, err)
		}
	}
	for name, patch := range map[string]string{
		"a label": `{"metadata": {"labels": {"a": "b"}}}`, "a deadline": `{"spec": {"activeDeadlineSeconds": 3600}}`,
	} {
		if _, err := pods.Patch(t.Context(), "old", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Errorf("Setting %s: %v", name, err)
		}
	}
	resize := []byte(`{"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1m"}}}]}}`)
	if _, err := pods.Patch(t.Context(), "old", types.StrategicMergePatchType, resize, metav1.PatchOptions{}, "resize"); isDenied(err) == nil {
		t.Errorf("Resizing: %v", err)
	}
	setLabel(t, c, ns, "null")
	e2e.Eventually(t, settleBound, "the label is gone", func(ctx context.Context) error {
		_, err := pods.Create(ctx, pod("new"), dryRun())
		return err
	})
}

// TestPodSecurityWhilePosternIsAway checks what is refused and what is not, if Postern cannot reach the API server and
// if Postern does not run.
func TestPodSecurityWhilePosternIsAway(t *testing.T) {
	t.Parallel()
	c := withoutPodSecurity(t)
	way := e2e.StartProxy(t, strings.TrimPrefix(c.URL(), "https://"))
	o := podSecurity(t, "")
	o.Kubeconfig = c.PosternKubeconfig(t, "https://"+way.Addr())
	o.Flags = append(o.Flags, "--webhook-timeout=2s")
	p := startPodSecurity(t, c, o)
	known := labelled(t, c)
	pods := c.Admin.CoreV1().Pods(known)
	made, err := pods.Create(t.Context(), restricted("before"), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Creating a pod: %v", err)
	}
	e2e.Throughout(t, calm, "the namespace is cached by now", func(ctx context.Context) error {
		_, err := pods.Create(ctx, pod("web"), dryRun())
		return isDenied(err)
	})
	deploy := func(t *testing.T, namespace string) {
		t.Helper()
		w := &world{Cluster: c}
		if _, err := c.Admin.AppsV1().Deployments(namespace).Create(t.Context(), w.deployment("web", 1), dryRun()); err != nil {
			t.Errorf("Creating a Deployment: %v", err)
		}
	}
	t.Run("Postern cannot reach the API server", func(t *testing.T) {
		way.Cut()
		_, err := pods.Create(t.Context(), pod("web"), metav1.CreateOptions{})
		if err := isDenied(err); err != nil {
			t.Errorf("Creating a pod in a namespace that is cached: %v", err)
		}
		unknown := labelled(t, c)
		if _, err := c.Admin.CoreV1().Pods(unknown).Create(t.Context(), restricted("web"), dryRun()); !apierrors.IsInternalError(err) {
			t.Errorf("Creating a pod in a namespace that is not cached returned %v, want an internal error", err)
		}
		deploy(t, unknown)
	})
	t.Run("Postern does not run", func(t *testing.T) {
		p.Kill()
		if _, err := pods.Create(t.Context(), restricted("web"), metav1.CreateOptions{}); !apierrors.IsInternalError(err) {
			t.Errorf("Creating a pod returned %v, want an internal error", err)
		}
		image := []byte(`{"spec": {"containers": [{"name": "app", "image": "other"}]}}`)
		if _, err := pods.Patch(t.Context(), made.Name, types.StrategicMergePatchType, image, metav1.PatchOptions{}); !apierrors.IsInternalError(err) {
			t.Errorf("Setting an image returned %v, want an internal error", err)
		}
		patch := []byte(`{"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/seen"]}}`)
		if _, err := pods.Patch(t.Context(), made.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Errorf("Setting a finalizer: %v", err)
		}
		if _, err := pods.Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil {
			t.Errorf("Removing a finalizer: %v", err)
		}
		deploy(t, known)
		c.Namespace(t)
		level := []byte(`{"metadata": {"labels": {"` + enforceLabel + `": "privileged"}}}`)
		if _, err := c.Admin.CoreV1().Namespaces().Patch(t.Context(), known, types.MergePatchType, level, metav1.PatchOptions{}); !apierrors.IsInternalError(err) {
			t.Errorf("Lowering the level returned %v, want an internal error", err)
		}
	})
}

// warnings records the warnings of a client.
type warnings struct {
	mu   sync.Mutex
	all  []string
	take kubernetes.Interface
}

// warningsOf returns the warnings of the administrator's requests.
func warningsOf(t *testing.T, c *e2e.Cluster) *warnings {
	t.Helper()
	config, w := c.Config(t, controlplane.Admin), &warnings{}
	config.WarningHandler = w
	var err error
	if w.take, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return w
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// of returns the warnings of one request.
func (w *warnings) of(request func(kubernetes.Interface) error) ([]string, error) {
	w.mu.Lock()
	w.all = nil
	w.mu.Unlock()
	err := request(w.take)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all, err
}

// TestPodSecurityDefaultsOnly runs PodSecurity beside that of the API server.
func TestPodSecurityDefaultsOnly(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	c.StartPostern(t, podSecurity(t, ", defaultsOnly: true, defaults: {enforce: baseline, warn: baseline}, exemptions: {namespaces: [kube-system]}"))
	w := warningsOf(t, c)
	host := func(name string) *corev1.Pod {
		p := pod(name)
		p.Spec.HostNetwork = true
		return p
	}
	create := func(namespace string) error {
		_, err := c.Admin.CoreV1().Pods(namespace).Create(t.Context(), host("web"), dryRun())
		return err
	}
	plain := c.Namespace(t)
	e2e.Eventually(t, settleBound, "the default counts in a namespace without labels", func(context.Context) error { return isDenied(create(plain)) })
	privileged := c.Namespace(t)
	setLabel(t, c, privileged, `"privileged"`)
	e2e.Eventually(t, settleBound, "a label outranks the default", func(context.Context) error { return create(privileged) })
	inTree := c.Namespace(t)
	setLabel(t, c, inTree, `"baseline"`)
	if err := create(inTree); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "postern") {
		t.Errorf("Creating a pod returned %v, want a denial of the API server itself", err)
	}
	// Both would warn of a Deployment: one at the level of the label for enforce, one at the default for warn.
	for _, namespace := range []string{plain, inTree} {
		e2e.Eventually(t, settleBound, "there is one warning", func(ctx context.Context) error {
			got, err := w.of(func(client kubernetes.Interface) error {
				d := (&world{Cluster: c}).deployment("web", 1)
				d.Spec.Template.Spec.HostNetwork = true
				_, err := client.AppsV1().Deployments(namespace).Create(ctx, d, dryRun())
				return err
			})
			if err == nil && (len(got) != 1 || !strings.Contains(got[0], `would violate PodSecurity "baseline:latest"`)) {
				err = fmt.Errorf("got %q", got)
			}
			return err
		})
	}
	if _, err := c.Admin.CoreV1().Pods("kube-system").Create(t.Context(), host("web"), dryRun()); apierrors.ReasonForError(err) == metav1.StatusReasonForbidden {
		t.Errorf("Creating a pod in an exempt namespace: %v", err)
	}
}
