package certs_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/pkg/certs"
)

const (
	namespace  = "postern-system"
	secretName = "postern-ca"
)

func secretStore(client kubernetes.Interface) *certs.SecretStore {
	return certs.NewSecretStore(client, namespace, secretName)
}

func secretOf(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName, ResourceVersion: "7"},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}

// madeSecret is the data of a Secret that an Authority made.
func madeSecret(t *testing.T) map[string][]byte {
	t.Helper()
	client := fake.NewClientset()
	newAuthority(t, secretStore(client), options(newClock()))
	secret, err := client.CoreV1().Secrets(namespace).Get(t.Context(), secretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if secret.Type != corev1.SecretTypeOpaque {
		t.Errorf("The Secret is of type %q, want Opaque", secret.Type)
	}
	return secret.Data
}

func TestReplicasShareOneSecret(t *testing.T) {
	for _, n := range []int{2, 20} {
		client, clock := fake.NewClientset(), newClock()
		bundles := together(n, func() string {
			a, err := certs.NewAuthority(logging(t), secretStore(client), options(clock))
			if err != nil {
				return err.Error()
			}
			return string(a.Bundle())
		})
		want := string(newAuthority(t, secretStore(client), options(clock)).Bundle())
		for i, got := range bundles {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Bundle of replica %d of %d (-want +got):\n%s", i, n, diff)
			}
		}
	}
}

func TestBrokenSecrets(t *testing.T) {
	good, other := madeSecret(t), madeSecret(t)
	a := newAuthority(t, secretStore(fake.NewClientset(secretOf(good))), options(newClock()))
	half := good["ca.crt"][:len(good["ca.crt"])/2]
	noCertificate := []byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")
	const prefix = "Secret postern-system/postern-ca, key "
	tests := map[string]struct {
		change map[string][]byte
		want   string
	}{
		"no bundle":         {map[string][]byte{"ca.crt": nil}, "ca.crt: missing or empty"},
		"no certificate":    {map[string][]byte{"tls.crt": nil}, "tls.crt: missing or empty"},
		"no key":            {map[string][]byte{"tls.key": nil}, "tls.key: missing or empty"},
		"half a bundle":     {map[string][]byte{"ca.crt": half}, "ca.crt: 0 of 1 PEM blocks can be decoded"},
		"one and a half":    {map[string][]byte{"ca.crt": append(other["ca.crt"], half...)}, "ca.crt: 1 of 2 PEM blocks can be decoded"},
		"no PEM":            {map[string][]byte{"tls.crt": []byte("certificate")}, "tls.crt: 0 of 0 PEM blocks can be decoded"},
		"no certificate in": {map[string][]byte{"tls.crt": noCertificate}, "tls.crt: parsing certificate 1: "},
		"key in the bundle": {map[string][]byte{"ca.crt": good["tls.key"]}, `ca.crt: holds a PEM block "EC PRIVATE KEY", want certificates only`},
		"undecodable key":   {map[string][]byte{"tls.key": []byte("key")}, "tls.key: parsing the key: "},
		"another's key":     {map[string][]byte{"tls.key": other["tls.key"]}, "tls.key: the key does not match the certificate in " + prefix + "tls.crt"},
		"another's bundle":  {map[string][]byte{"ca.crt": other["ca.crt"]}, "tls.crt: the certificate that signs is not in the bundle " + prefix + "ca.crt"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(good)
			maps.Copy(data, test.change)
			wantRefused(t, data, prefix+test.want)
		})
	}
	t.Run("a leaf", func(t *testing.T) {
		data := maps.Clone(good)
		data["ca.crt"], data["tls.crt"], data["tls.key"] = servingPair(t, a)
		wantRefused(t, data, prefix+"tls.crt: the certificate is not one of a CA")
	})
}

// wantRefused checks that a replica reports the text instead of becoming ready, and leaves the Secret unchanged.
func wantRefused(t *testing.T, data map[string][]byte, want string) {
	t.Helper()
	client, clock := fake.NewClientset(secretOf(data)), newClock()
	a := newAuthority(t, secretStore(client), options(clock))
	if err := a.Ready(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Error %v, want one with %q", err, want)
	}
	if len(a.Bundle()) != 0 || len(a.PathKeys()) != 0 {
		t.Errorf("It publishes %s and %x", a.Bundle(), a.PathKeys())
	}
	if _, err := a.GetCertificate(nil); err != nil {
		t.Errorf("Probes of the secure port get no answer: %v", err)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("The broken Secret was touched: %s", action.GetVerb())
		}
	}
}

// TestExpiredCAIsReplaced checks that an expired CA is replaced at once, because no client accepts its certificates.
func TestExpiredCAIsReplaced(t *testing.T) {
	client, clock := fake.NewClientset(secretOf(madeSecret(t))), newClock()
	clock.SetTime(clock.Now().AddDate(10, 0, 0))
	a := newAuthority(t, secretStore(client), options(clock))
	if err := a.Ready(); err != nil {
		t.Errorf("Ready: %v", err)
	}
	if err := shake(t.Context(), listen(t, a), serverName, a.Bundle(), clock.Now()); err != nil {
		t.Errorf("Handshake: %v", err)
	}
}

func TestEmptySecretIsFilled(t *testing.T) {
	client := fake.NewClientset(secretOf(nil))
	a := newAuthority(t, secretStore(client), options(newClock()))
	b := newAuthority(t, secretStore(client), options(newClock()))
	if diff := cmp.Diff(string(a.Bundle()), string(b.Bundle())); diff != "" {
		t.Errorf("The second replica has another bundle (-first +second):\n%s", diff)
	}
	for _, action := range client.Actions() {
		if update, ok := action.(clienttesting.UpdateAction); ok && action.GetVerb() == "update" {
			if got := update.GetObject().(*corev1.Secret).ResourceVersion; got != "7" {
				t.Errorf("The update was made to resource version %q, want the one that was read", got)
			}
			return
		}
	}
	t.Error("The Secret was not updated")
}

func TestEmptySecretFilledByAnother(t *testing.T) {
	client, theirs := fake.NewClientset(secretOf(nil)), madeSecret(t)
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := client.Tracker().Update(secrets, secretOf(theirs), namespace); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewConflict(secrets.GroupResource(), secretName, errors.New("modified"))
	})
	a := newAuthority(t, secretStore(client), options(newClock()))
	if diff := cmp.Diff(string(theirs["ca.crt"]), string(a.Bundle())); diff != "" {
		t.Errorf("Bundle (-want +got):\n%s", diff)
	}
}

func TestBundleWithTwoCAsIsPublishedWhole(t *testing.T) {
	data, other := madeSecret(t), madeSecret(t)
	data["ca.crt"] = append(other["ca.crt"], data["ca.crt"]...)
	clock := newClock()
	a := newAuthority(t, secretStore(fake.NewClientset(secretOf(data))), options(clock))
	if diff := cmp.Diff(string(data["ca.crt"]), string(a.Bundle())); diff != "" {
		t.Errorf("Bundle (-want +got):\n%s", diff)
	}
	if err := shake(t.Context(), listen(t, a), serverName, a.Bundle(), clock.Now()); err != nil {
		t.Errorf("Handshake: %v", err)
	}
}

func TestAPIErrorsAreReturned(t *testing.T) {
	for _, verb := range []string{"get", "create"} {
		client := fake.NewClientset()
		refused := apierrors.NewForbidden(corev1.Resource("secrets"), secretName, errors.New("no"))
		client.PrependReactor(verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, refused
		})
		err := newAuthority(t, secretStore(client), options(newClock())).Ready()
		if !apierrors.IsForbidden(err) {
			t.Errorf("Error of %s is %v, want Forbidden", verb, err)
		}
	}
}

func TestDelete(t *testing.T) {
	store := secretStore(fake.NewClientset())
	newAuthority(t, store, options(newClock()))
	for _, want := range []bool{true, false} {
		if existed, err := store.Delete(t.Context()); err != nil || existed != want {
			t.Fatalf("Delete: %v, %v, want %v", existed, err, want)
		}
		if _, err := store.Load(t.Context()); !errors.Is(err, certs.ErrNoCA) {
			t.Errorf("Load after Delete: %v, want %v", err, certs.ErrNoCA)
		}
	}
}
