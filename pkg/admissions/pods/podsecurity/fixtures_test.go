package podsecurity_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/pkg/admissions/pods/podsecurity"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

// fixture is a pod of the library's tests, which a level in a version has to pass or to deny.
type fixture struct {
	file, level, version string
	passes               bool
}

// namespace is the namespace with the level and the version of the fixture.
func (f fixture) namespace() string { return f.level + "-" + strings.ReplaceAll(f.version, ".", "-") }

const (
	// minFixtures is the least number of fixtures. There are a few more.
	minFixtures   = 4500
	newestVersion = "v1.37"
)

func fixtures(t *testing.T) []fixture {
	t.Helper()
	var out []fixture
	for _, file := range podsecurity.FixtureFiles(t, "*", minFixtures) {
		verdict := filepath.Dir(file)
		version := filepath.Dir(verdict)
		f := fixture{file, filepath.Base(filepath.Dir(version)), filepath.Base(version), filepath.Base(verdict) == "pass"}
		if !f.passes && filepath.Base(verdict) != "fail" {
			t.Fatalf("%s: want a fixture in pass or fail", file)
		}
		out = append(out, f)
	}
	return out
}

// TestFixtures sends the pods of the library's tests, every level in every version, through the router: as a pod,
// which is denied if it violates the level, and as the template of a Deployment, which is warned about.
func TestFixtures(t *testing.T) {
	all := fixtures(t)
	s := serveNamespaces(t, all)
	t.Cleanup(s.Close)
	const parts = 4
	for part := range parts {
		t.Run(fmt.Sprintf("part %d of %d", part+1, parts), func(t *testing.T) {
			t.Parallel()
			for i := part; i < len(all); i += parts {
				all[i].check(t, s)
			}
		})
	}
}

// serveNamespaces serves the plugin in a cluster with a namespace for every level and version, and a privileged one.
func serveNamespaces(t *testing.T, all []fixture) *admittest.Server {
	t.Helper()
	c := &admittest.Case{}
	done := map[string]bool{}
	for _, f := range append([]fixture{{level: "privileged", version: "latest"}}, all...) {
		if done[f.namespace()] {
			continue
		}
		done[f.namespace()] = true
		labels := map[string]string{}
		for _, mode := range []string{"enforce", "warn"} {
			labels["pod-security.kubernetes.io/"+mode], labels["pod-security.kubernetes.io/"+mode+"-version"] = f.level, f.version
		}
		c.Cluster = append(c.Cluster, encode(t, &corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: f.namespace(), Labels: labels},
		}))
	}
	s, err := c.Serve(t.Context(), podsecurity.Plugin)
	if err != nil {
		t.Fatalf("Serving the plugin: %v", err)
	}
	return s
}

func (f fixture) check(t *testing.T, s *admittest.Server) {
	t.Helper()
	text, err := os.ReadFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		t.Fatalf("%s: %v", f.file, err)
	}
	setDefaults(&pod)
	violates := fmt.Sprintf("PodSecurity %q: ", f.level+":"+f.version)
	switch resp := post(t, s, f.namespace(), &pod); {
	case resp.Allowed != f.passes:
		t.Errorf("%s: got allowed %t (%v), want %t", f.file, resp.Allowed, resp.Result, f.passes)
	case !resp.Allowed && (resp.Result.Code != 403 || !strings.Contains(resp.Result.Message, "violates "+violates)):
		t.Errorf("%s: got %d %q, want 403 and a violation of %s", f.file, resp.Result.Code, resp.Result.Message, violates)
	}
	// No check has a version for the level privileged, so the fixtures of one version are enough.
	if f.version == newestVersion {
		if resp := post(t, s, "privileged-latest", &pod); !resp.Allowed || len(resp.Warnings) > 0 {
			t.Errorf("%s: got allowed %t and the warnings %q in a privileged namespace", f.file, resp.Allowed, resp.Warnings)
		}
	}
	resp := post(t, s, f.namespace(), &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}},
	})
	warned := len(resp.Warnings) == 1 && strings.Contains(resp.Warnings[0], "would violate "+violates)
	if !resp.Allowed || warned == f.passes {
		t.Errorf("%s: got allowed %t and the warnings %q for a Deployment, want a warning: %t", f.file, resp.Allowed, resp.Warnings, !f.passes)
	}
}

// setDefaults makes an emptyDir of a volume without a source, as the API server does before it calls webhooks.
func setDefaults(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		if source := &pod.Spec.Volumes[i].VolumeSource; *source == (corev1.VolumeSource{}) {
			source.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	}
}

// post sends the review of a new object.
func post(t *testing.T, s *admittest.Server, namespace string, obj any) *admissionv1.AdmissionResponse {
	t.Helper()
	ar, err := (&admittest.Request{Operation: admissionv1.Create, Object: encode(t, obj), Namespace: &namespace}).Admission()
	if err != nil {
		t.Fatalf("Making the request: %v", err)
	}
	resp, err := s.Post(t.Context(), router.PhaseValidate, ar)
	if err != nil {
		t.Fatalf("Sending the review: %v", err)
	}
	return resp
}

func encode(t *testing.T, obj any) []byte {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
