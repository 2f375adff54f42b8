package app

import (
	"bytes"
	"strings"
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
	deployment := func(annotations map[string]string, managers ...metav1.ManagedFieldsEntry) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "postern", Namespace: namespace, UID: "1", Annotations: annotations, ManagedFields: managers}}
	}
	manager := func(name string, operation metav1.ManagedFieldsOperationType, subresource string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: name, Operation: operation, Subresource: subresource}
	}
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	helms := map[string]string{"meta.helm.sh/release-name": "postern", "meta.helm.sh/release-namespace": namespace}
	kubectls := map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}
	both := map[string]string{"meta.helm.sh/release-name": "postern", corev1.LastAppliedConfigAnnotation: "{}"}
	byHelm := deployment(helms, manager("helm", update, ""))
	secret := func(version, status string) runtime.Object {
		return record("Secret", namespace, "postern", version, status)
	}
	const doubt = "it is not known whether Helm is uninstalling the release postern: "
	for name, test := range map[string]struct {
		deployment *appsv1.Deployment
		records    []runtime.Object
		want       string // The reason to keep the webhooks. They are removed if empty.
		failure    string // How the error begins.
	}{
		"Helm uninstalls":            {byHelm, []runtime.Object{secret("1", "uninstalling")}, "", ""},
		"after rollbacks":            {byHelm, []runtime.Object{secret("9", "superseded"), secret("10", "uninstalling"), secret("2", "superseded")}, "", ""},
		"its records are ConfigMaps": {byHelm, []runtime.Object{record("ConfigMap", namespace, "postern", "1", "uninstalling")}, "", ""},
		"without its Deployment":     {nil, []runtime.Object{secret("1", "uninstalling")}, "", ""},
		"kubectl applied it before":  {deployment(both), []runtime.Object{secret("1", "uninstalling")}, "", ""},
		"its records are elsewhere":  {byHelm, []runtime.Object{record("Secret", "flux-system", "postern", "1", "uninstalling")}, "", ""},
		"Flux uses Helm 4": {deployment(
			helms, manager("helm-controller", apply, ""), manager("kube-controller-manager", update, "status"), manager("autoscaler", apply, "scale"),
		), nil, "", ""},
		"Terraform, with a database": {deployment(helms, manager("terraform-provider-helm_v3.1.0", apply, "")), nil, "", ""},

		"a rendered chart is applied": {deployment(kubectls), nil, "Helm did not install the Deployment postern", ""},
		"another release installed it": {
			deployment(map[string]string{"meta.helm.sh/release-name": "gate"}),
			[]runtime.Object{record("Secret", namespace, "gate", "1", "uninstalling")},
			"Helm did not install the Deployment postern", "",
		},
		"kubectl took over":                        {deployment(both), []runtime.Object{secret("1", "superseded"), secret("2", "deployed")}, "its status is deployed", ""},
		"Flux took over":                           {deployment(helms, manager("kustomize-controller", apply, "")), []runtime.Object{secret("2", "failed")}, "its status is failed", ""},
		"Helm uninstalled it and kept the history": {deployment(nil), []runtime.Object{secret("1", "uninstalled")}, "Helm did not install the Deployment postern", ""},
		"an uninstall was aborted and rolled back": {deployment(both), []runtime.Object{secret("1", "uninstalling"), secret("2", "deployed")}, "its status is deployed", ""},

		"without its Deployment, its records are elsewhere": {nil, nil, "", doubt + "there is no Deployment"},
		"the status is another one":                         {byHelm, []runtime.Object{secret("1", "deployed")}, "", doubt + "its status is deployed"},
		"two kinds of records": {
			byHelm, []runtime.Object{secret("1", "deployed"), record("ConfigMap", namespace, "postern", "1", "failed")}, "", doubt + "its status is deployed and failed",
		},
		"kubectl took over, without records": {deployment(both), nil, "", doubt + "the namespace has no records of it, and another tool has applied the Deployment postern"},
		"Flux took over, without records": {
			deployment(helms, manager("helm", update, ""), manager("kustomize-controller", apply, "")), nil, "",
			doubt + "the namespace has no records of it, and another tool has applied the Deployment postern",
		},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			client := fake.NewClientset()
			if test.deployment != nil {
				if err := client.Tracker().Add(test.deployment); err != nil {
					t.Fatal(err)
				}
			}
			c := &cluster{client: client, metadata: metadatafake.NewSimpleMetadataClient(scheme, test.records...)}
			d, err := c.deployment(t.Context(), namespace, "postern")
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.keepReason(t.Context(), namespace, "postern", d)
			if failed := err != nil; got != test.want || failed != (test.failure != "") || failed && !strings.HasPrefix(err.Error(), test.failure) {
				t.Errorf("Got %q, %v, want %q, and the error %q", got, err, test.want, test.failure)
			}
		})
	}
}
