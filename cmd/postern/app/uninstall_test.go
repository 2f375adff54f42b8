package app

import (
	"bytes"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/postern-dev/postern/internal/segment"
)

// TestDeleteSecrets checks that the uninstall command names only Secrets that existed.
func TestDeleteSecrets(t *testing.T) {
	const namespace = "postern-system"
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	}
	for name, test := range map[string]struct {
		secrets []*corev1.Secret
		want    string
	}{
		"none":     {nil, ""},
		"the CA":   {[]*corev1.Secret{secret(secretName)}, "secret/postern-ca deleted from namespace postern-system\n"},
		"the path": {[]*corev1.Secret{secret(segment.SecretName)}, "secret/" + segment.SecretName + " deleted from namespace postern-system\n"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			for _, s := range test.secrets {
				if _, err := client.CoreV1().Secrets(namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			if err := (&cluster{client: client}).deleteSecrets(t.Context(), namespace, &out); err != nil || out.String() != test.want {
				t.Errorf("Got %q, %v, want %q", out.String(), err, test.want)
			}
			left, err := client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(left.Items) > 0 {
				t.Errorf("Got the Secrets %v, %v, want none", left.Items, err)
			}
		})
	}
}

// TestHelmRelease checks when the Job of the chart removes the webhooks. Tools that apply a rendered chart run it too.
func TestHelmRelease(t *testing.T) {
	const namespace = "postern-system"
	record := func(kind, namespace, release, version, status string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind},
			ObjectMeta: metav1.ObjectMeta{
				Name: "sh.helm.release.v1." + release + ".v" + version, Namespace: namespace,
				Labels: map[string]string{"owner": "helm", "name": release, "version": version, "status": status},
			},
		}
	}
	byHelm := map[string]string{"meta.helm.sh/release-name": "postern", "meta.helm.sh/release-namespace": namespace}
	ofAnother := map[string]string{"meta.helm.sh/release-name": "gate", "meta.helm.sh/release-namespace": namespace}
	adopted := map[string]string{"meta.helm.sh/release-name": "postern", corev1.LastAppliedConfigAnnotation: "{}"}
	for name, test := range map[string]struct {
		deployment map[string]string // Its annotations. There is no Deployment if nil.
		records    []runtime.Object
		want       string // The reason to keep the webhooks. They are removed if empty.
	}{
		"Helm uninstalls": {byHelm, []runtime.Object{record("Secret", namespace, "postern", "1", "uninstalling")}, ""},
		"after a rollback": {byHelm, []runtime.Object{
			record("Secret", namespace, "postern", "1", "superseded"), record("Secret", namespace, "postern", "2", "superseded"), record("Secret", namespace, "postern", "3", "uninstalling"),
		}, ""},
		"its records are ConfigMaps": {byHelm, []runtime.Object{record("ConfigMap", namespace, "postern", "1", "uninstalling")}, ""},
		"without its Deployment":     {nil, []runtime.Object{record("Secret", namespace, "postern", "1", "uninstalling")}, ""},
		"its records are elsewhere":  {byHelm, []runtime.Object{record("Secret", "flux-system", "postern", "1", "uninstalling")}, ""},
		"a rendered chart is applied first": {nil, nil, "the namespace has no records of it, and no Deployment"},
		"a rendered chart is applied":       {map[string]string{}, nil, "the namespace has no records of it, and Helm did not install the Deployment postern"},
		"another release installed it": {
			ofAnother, []runtime.Object{record("Secret", namespace, "gate", "1", "uninstalling")},
			"the namespace has no records of it, and Helm did not install the Deployment postern",
		},
		"Helm installed it, another tool took over": {
			adopted, []runtime.Object{record("Secret", namespace, "postern", "1", "superseded"), record("Secret", namespace, "postern", "2", "deployed")},
			"its revisions are deployed, superseded",
		},
		"Helm installed it, its records were deleted": {adopted, nil, "the namespace has no records of it, and the Deployment postern was applied since"},
		"Helm uninstalled it and kept the history":    {map[string]string{}, []runtime.Object{record("Secret", namespace, "postern", "1", "uninstalled")}, "its revisions are uninstalled"},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			client := fake.NewClientset()
			if test.deployment != nil {
				d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "postern", Namespace: namespace, UID: "1", Annotations: test.deployment}}
				if err := client.Tracker().Add(d); err != nil {
					t.Fatal(err)
				}
			}
			c := &cluster{client: client, metadata: metadatafake.NewSimpleMetadataClient(scheme, test.records...)}
			d, err := c.deployment(t.Context(), namespace, "postern")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := c.isKept(t.Context(), namespace, "postern", d); got != test.want || err != nil {
				t.Errorf("Got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
