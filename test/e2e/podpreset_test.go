package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// database is a preset for the pods of applications. NAMESPACE stands for its namespace.
const database = `
apiVersion: settings.postern.dev/v1alpha1
kind: PodPreset
metadata: {name: database, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {preset: database}}
  env: [{name: DB_PORT, value: "6379"}, {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  envFrom: [{configMapRef: {name: etcd, optional: true}}]
  volumes: [{name: cache}, {name: key, secret: {secretName: key, optional: true}}, {name: host, hostPath: {path: /srv}}]
  volumeMounts: [{name: cache, mountPath: /cache}, {name: key, mountPath: /key, readOnly: true}]
`

// selected returns a pod that the preset selects.
func selected(name string) *corev1.Pod {
	p := pod(name)
	p.Labels = map[string]string{"preset": "database"}
	return p
}

// hasPreset returns an error unless all containers of the pod have the content of the preset.
func hasPreset(p *corev1.Pod, err error) error {
	if err != nil {
		return err
	}
	for _, c := range append(slices.Clone(p.Spec.InitContainers), p.Spec.Containers...) {
		paths := map[string]bool{}
		for _, m := range c.VolumeMounts {
			paths[m.MountPath] = true
		}
		if len(c.Env) != 2 || c.Env[0].Value != "6379" || c.Env[1].ValueFrom.FieldRef.APIVersion != "v1" || len(c.EnvFrom) != 1 || !paths["/cache"] || !paths["/key"] {
			return fmt.Errorf("container %s has %+v, %+v, %+v", c.Name, c.Env, c.EnvFrom, c.VolumeMounts)
		}
	}
	sources := map[string]corev1.VolumeSource{}
	for _, v := range p.Spec.Volumes {
		sources[v.Name] = v.VolumeSource
	}
	if sources["cache"].EmptyDir == nil || sources["key"].Secret == nil || *sources["key"].Secret.DefaultMode != 0o644 || p.Annotations["podpreset.admission.kubernetes.io/podpreset-database"] == "" {
		return fmt.Errorf("the pod has %+v and the annotations %v", p.Spec.Volumes, p.Annotations)
	}
	return nil
}

// isPlain returns an error if the pod has something of a preset.
func isPlain(p *corev1.Pod, err error) error {
	if err != nil {
		return err
	}
	for key := range p.Annotations {
		if strings.Contains(key, "podpreset-") {
			return fmt.Errorf("the pod has the annotations %v", p.Annotations)
		}
	}
	if len(p.Spec.Containers[0].EnvFrom) > 0 {
		return fmt.Errorf("the container has %+v", p.Spec.Containers[0].EnvFrom)
	}
	return nil
}

func (w *world) warnings(t *testing.T) *warnings {
	t.Helper()
	config, out := w.Config(t, controlplane.Admin), &warnings{}
	config.WarningHandler = out
	var err error
	if out.take, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPodPreset creates pods in a namespace with a preset.
func TestPodPreset(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	w := newWorld(t, c)
	ns := w.namespace
	c.Apply(t, strings.ReplaceAll(database, "NAMESPACE", ns))
	c.StartPostern(t, e2e.Options{Plugins: []string{"PodPreset"}})
	pods := c.Admin.CoreV1().Pods(ns)
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		return hasPreset(pods.Create(ctx, selected("called"), dryRun()))
	})
	t.Run("a Deployment", func(t *testing.T) {
		d := w.deployment("web", 2)
		d.Spec.Template.Labels["preset"] = "database"
		d.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init"}}
		if _, err := c.Admin.AppsV1().Deployments(ns).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.awaitPods(t, ns, "web", 2)
		list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if err := hasPreset(&list.Items[i], nil); err != nil {
				t.Errorf("Pod %s: %v", list.Items[i].Name, err)
			}
		}
	})
	t.Run("other pods", func(t *testing.T) {
		excluded := selected("excluded")
		excluded.Annotations = map[string]string{"podpreset.admission.kubernetes.io/exclude": "true"}
		if err := isPlain(pods.Create(t.Context(), excluded, dryRun())); err != nil {
			t.Errorf("An excluded pod: %v", err)
		}
		if err := isPlain(pods.Create(t.Context(), pod("other"), dryRun())); err != nil {
			t.Errorf("A pod that is not selected: %v", err)
		}
		if err := isPlain(c.Admin.CoreV1().Pods(c.Namespace(t)).Create(t.Context(), selected("other"), dryRun())); err != nil {
			t.Errorf("A pod of another namespace: %v", err)
		}
	})
	t.Run("a conflict", func(t *testing.T) { w.checkConflict(t) })
	t.Run("PodSecurity is no hostage", func(t *testing.T) {
		setLabel(t, c, ns, `"baseline"`)
		defer setLabel(t, c, ns, "null")
		if _, err := pods.Create(t.Context(), pod("plain"), dryRun()); err != nil {
			t.Errorf("A pod without the preset: %v", err)
		}
		if _, err := pods.Create(t.Context(), selected("host"), dryRun()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "hostPath") {
			t.Errorf("A pod that gets a hostPath volume: got %v, want a denial", err)
		}
	})
	// The API server calls the webhook of this test until the end.
	t.Run("a webhook that is called later", func(t *testing.T) { w.checkSidecar(t) })
}

// checkConflict creates pods that conflict with the preset.
func (w *world) checkConflict(t *testing.T) {
	t.Helper()
	const conflict = `PodPreset "database" conflicts on env "DB_PORT" of container "app"`
	conflicting := func(name string) *corev1.Pod {
		p := selected(name)
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DB_PORT", Value: "a secret"}}
		return p
	}
	events := func(ctx context.Context) ([]corev1.Event, error) {
		list, err := w.Admin.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=PodPreset"})
		return list.Items, err
	}
	got := w.warnings(t)
	create := func(name string, o metav1.CreateOptions) {
		t.Helper()
		var stored *corev1.Pod
		all, err := got.of(func(client kubernetes.Interface) (err error) {
			stored, err = client.CoreV1().Pods(w.namespace).Create(t.Context(), conflicting(name), o)
			return err
		})
		if err := isPlain(stored, err); err != nil || !slices.Equal(all, []string{"No PodPreset was applied: " + conflict}) {
			t.Errorf("Got %v and the warnings %q", err, all)
		}
	}
	create("dry", dryRun())
	time.Sleep(calm)
	if list, err := events(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("Got %v and the Events %+v after a dry run", err, list)
	}
	create("conflict", metav1.CreateOptions{})
	e2e.Eventually(t, settleBound, "there is an Event for the preset", func(ctx context.Context) error {
		list, err := events(ctx)
		if err != nil || len(list) != 1 {
			return fmt.Errorf("got %w and %d Events", err, len(list))
		}
		const want = `No PodPreset was applied to pod "conflict": conflict on env "DB_PORT" of container "app"`
		if e := list[0]; e.Message != want || e.Reason != "Conflict" || e.Type != corev1.EventTypeWarning || e.InvolvedObject.Name != "database" || e.InvolvedObject.UID == "" {
			t.Errorf("Got the Event %+v", e)
		}
		return nil
	})
	out, err := w.Kubectl(t.Context(), controlplane.Admin, "describe", "podpreset", "database", "-n", w.namespace).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "conflict on env \"DB_PORT\"") || strings.Contains(string(out), "a secret") {
		t.Errorf("kubectl describe: %v:\n%s", err, out)
	}
}

// checkSidecar has another webhook add a container after Postern was called.
func (w *world) checkSidecar(t *testing.T) {
	t.Helper()
	sidecar := e2e.StartWebhook(t, `[{"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "sidecar"}}]`)
	w.Register(t, sidecar, "zz-sidecar", w.namespace, admissionregistrationv1.NeverReinvocationPolicy)
	awaitWebhook(t, w.Cluster, sidecar, w.namespace)
	var stored *corev1.Pod
	all, err := w.warnings(t).of(func(client kubernetes.Interface) (err error) {
		stored, err = client.CoreV1().Pods(w.namespace).Create(t.Context(), selected("sidecar"), metav1.CreateOptions{})
		return err
	})
	if err := hasPreset(stored, err); err != nil || len(stored.Spec.Containers) != 2 || len(stored.Spec.Volumes) != 4 || len(all) > 0 {
		t.Errorf("Got %v, the containers %+v, the volumes %+v and the warnings %q", err, stored.Spec.Containers, stored.Spec.Volumes, all)
	}
}

// legacyDefinition is a definition of presets in the group of kube-apiserver, without a schema.
const legacyDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: podpresets.settings.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: settings.k8s.io
  scope: Namespaced
  names: {kind: PodPreset, plural: podpresets}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestPodPresetsOfTheOldGroup has the old API group appear and vanish while Postern runs.
func TestPodPresetsOfTheOldGroup(t *testing.T) {
	t.Parallel()
	// Another test must not see the definition.
	c := suite.Start(t, controlplane.Options{})
	ns := c.Namespace(t)
	c.Apply(t, strings.ReplaceAll(database, "NAMESPACE", ns))
	// Postern is ready without the old group.
	p := c.StartPostern(t, e2e.Options{Plugins: []string{"PodPreset"}, Flags: []string{configured(t, "- {name: PodPreset, configuration: {legacyAPIGroup: true}}")}})
	pods := c.Admin.CoreV1().Pods(ns)
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		return hasPreset(pods.Create(ctx, selected("called"), dryRun()))
	})
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		cmd := c.Kubectl(t.Context(), controlplane.Admin, args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("kubectl %q: %v: %s", args, err, out)
		}
	}
	kubectl(legacyDefinition, "apply", "-f", "-")
	kubectl("", "wait", "--for=condition=Established", "crd/podpresets.settings.k8s.io")
	old := regexp.MustCompile(`settings\.postern\.dev|database`).ReplaceAllStringFunc(strings.ReplaceAll(database, "NAMESPACE", ns), func(s string) string {
		if s == "database" {
			return "old"
		}
		return "settings.k8s.io"
	})
	kubectl(old, "apply", "-f", "-")
	ofOld := func(ctx context.Context) (bool, error) {
		made := selected("old")
		made.Labels = map[string]string{"preset": "old"}
		got, err := pods.Create(ctx, made, dryRun())
		return err == nil && got.Annotations["podpreset.admission.kubernetes.io/podpreset-old"] != "", err
	}
	e2e.Eventually(t, 90*time.Second, "a preset of the old group is applied", func(ctx context.Context) error {
		if ok, err := ofOld(ctx); !ok {
			return errors.Join(errors.New("it is not"), err)
		}
		return nil
	})
	kubectl("", "delete", "crd", "podpresets.settings.k8s.io")
	e2e.Eventually(t, 90*time.Second, "the presets of the old group are gone", func(ctx context.Context) error {
		if ok, err := ofOld(ctx); ok || err != nil {
			return errors.Join(errors.New("they are not"), err)
		}
		return nil
	})
	if err := p.Ready(t.Context()); err != nil {
		t.Errorf("Postern is not ready: %v", err)
	}
	if err := hasPreset(pods.Create(t.Context(), selected("still"), dryRun())); err != nil {
		t.Errorf("A preset of our group: %v", err)
	}
	if strings.Contains(p.Log(), "podpresets.settings.k8s.io is missing") {
		t.Error("The log says that the definition of the old group is missing")
	}
}
