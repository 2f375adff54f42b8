package app

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

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
