package certs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/keyutil"
)

// The keys of the Secret: the bundle is apart from the pair that signs.
const (
	bundleKey = "ca.crt"
	certKey   = corev1.TLSCertKey
	keyKey    = corev1.TLSPrivateKeyKey
)

// createAttempts bounds how often Create starts over when others write or delete the Secret at the same time.
// Each of them either leaves a CA, which ends it, or is somebody who deletes in a loop.
const createAttempts = 5

// SecretStore keeps the CA in a Secret, for the replicas of a cluster.
type SecretStore struct {
	secrets typedcorev1.SecretInterface
	name    string
	label   string // How errors speak of the Secret.
}

var _ Store = (*SecretStore)(nil)

// NewSecretStore returns the store in the Secret of that name. It needs get, create, update and delete of it.
func NewSecretStore(client kubernetes.Interface, namespace, name string) *SecretStore {
	return &SecretStore{
		secrets: client.CoreV1().Secrets(namespace),
		name:    name,
		label:   fmt.Sprintf("Secret %s/%s", namespace, name),
	}
}

// Load implements Store. A Secret without any data is no CA yet: a manifest may have made it, to be filled.
func (s *SecretStore) Load(ctx context.Context) (*CA, error) {
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s: %w", s.label, ErrNoCA)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.label, err)
	}
	return s.parse(secret)
}

// Create implements Store.
func (s *SecretStore) Create(ctx context.Context, ca *CA) (*CA, error) {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(ca.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of the CA: %w", err)
	}
	data := map[string][]byte{bundleKey: ca.bundle, certKey: encode(ca.cert), keyKey: keyPEM}
	for range createAttempts {
		var secret *corev1.Secret
		secret, err = s.put(ctx, data)
		if err == nil {
			return s.parse(secret)
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	return nil, fmt.Errorf("writing %s: %w", s.label, err)
}

// put makes the Secret or fills an empty one, and returns it as it then is. The update carries the resource
// version that was read, so of two who fill it at the same time one gets a conflict.
func (s *SecretStore) put(ctx context.Context, data map[string][]byte) (*corev1.Secret, error) {
	secret, err := s.secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return secret, err
	}
	secret, err = s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	if err != nil || len(secret.Data) > 0 {
		return secret, err
	}
	secret = secret.DeepCopy()
	secret.Data = data
	return s.secrets.Update(ctx, secret, metav1.UpdateOptions{})
}

// Delete removes the Secret. That there is none is fine.
func (s *SecretStore) Delete(ctx context.Context) error {
	err := s.secrets.Delete(ctx, s.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", s.label, err)
	}
	return nil
}

func (s *SecretStore) parse(secret *corev1.Secret) (*CA, error) {
	if len(secret.Data) == 0 {
		return nil, fmt.Errorf("%s: %w", s.label, ErrNoCA)
	}
	entryOf := func(key string) entry {
		return entry{name: fmt.Sprintf("%s, key %s", s.label, key), data: secret.Data[key]}
	}
	return parseCA(entryOf(bundleKey), entryOf(certKey), entryOf(keyKey))
}
