package certs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/keyutil"
)

// The keys of the Secret. The bundle is separate from the pair that signs.
const (
	bundleKey   = "ca.crt"
	certKey     = corev1.TLSCertKey
	keyKey      = corev1.TLSPrivateKeyKey
	nextCertKey = "next.crt"
	nextKeyKey  = "next.key"
	leavingKey  = "leaving.json"
)

// rotateAnnotation on the Secret requests a rotation. Its value is the time of the request.
const rotateAnnotation = "postern.dev/rotate-ca"

// createAttempts bounds how often Create starts over when others write or delete the Secret at the same time. Usually
// another writer leaves a CA, and Create returns it. The bound is for a client that keeps deleting the Secret.
const createAttempts = 5

// SecretStore keeps the CA in a Secret, for the replicas of a cluster. Each step of a rotation is an update with the
// resource version that was read. If two replicas take the same step, one of them gets a conflict.
type SecretStore struct {
	secrets typedcorev1.SecretInterface
	name    string
	label   string // The name of the Secret in errors.
}

var _ Store = (*SecretStore)(nil)

// NewSecretStore returns the store in the named Secret. It needs permission to get, create, update and delete the
// Secret.
func NewSecretStore(client kubernetes.Interface, namespace, name string) *SecretStore {
	return &SecretStore{
		secrets: client.CoreV1().Secrets(namespace),
		name:    name,
		label:   fmt.Sprintf("Secret %s/%s", namespace, name),
	}
}

// Load implements Store. A Secret without data is not a CA yet: a manifest may have created the Secret for Create to
// fill.
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
	data, err := storedData(ca)
	if err != nil {
		return nil, err
	}
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

// put creates the Secret or fills an empty one, and returns the stored Secret. The update carries the resource
// version that was read. If two replicas fill the Secret at the same time, one of them gets a conflict.
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

// Update implements Store. It keeps the other data of the Secret.
func (s *SecretStore) Update(ctx context.Context, ca *CA) (*CA, error) {
	data, err := storedData(ca)
	if err != nil {
		return nil, err
	}
	return s.change(ctx, ca.version, func(secret *corev1.Secret) {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		for _, key := range []string{bundleKey, certKey, keyKey, nextCertKey, nextKeyKey, leavingKey} {
			delete(secret.Data, key)
		}
		maps.Copy(secret.Data, data)
		if !ca.requested {
			delete(secret.Annotations, rotateAnnotation)
		}
	})
}

// change edits the Secret if it still has the given version.
func (s *SecretStore) change(ctx context.Context, version string, edit func(*corev1.Secret)) (*CA, error) {
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && secret.ResourceVersion != version:
		return nil, fmt.Errorf("%s: %w", s.label, ErrChanged)
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", s.label, err)
	}
	secret = secret.DeepCopy()
	edit(secret)
	secret, err = s.secrets.Update(ctx, secret, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s: %w", s.label, ErrChanged)
	case err != nil:
		return nil, fmt.Errorf("writing %s: %w", s.label, err)
	}
	return s.parse(secret)
}

// RequestRotation asks the replicas for a new CA, and returns the state of the rotation. It requests nothing while a
// rotation is already in progress.
func (s *SecretStore) RequestRotation(ctx context.Context, now time.Time) (*Rotation, error) {
	ca, err := s.Load(ctx)
	if err != nil || ca.next != nil || ca.requested {
		return ca.rotation(), err
	}
	ca, err = s.change(ctx, ca.version, func(secret *corev1.Secret) {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, rotateAnnotation, now.UTC().Format(time.RFC3339))
	})
	return ca.rotation(), err
}

// Rotation returns the state of the CA rotation.
func (s *SecretStore) Rotation(ctx context.Context) (*Rotation, error) {
	ca, err := s.Load(ctx)
	return ca.rotation(), err
}

// Delete deletes the Secret, and reports whether it existed.
func (s *SecretStore) Delete(ctx context.Context) (existed bool, err error) {
	err = s.secrets.Delete(ctx, s.name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting %s: %w", s.label, err)
	}
	return true, nil
}

func (s *SecretStore) parse(secret *corev1.Secret) (*CA, error) {
	if len(secret.Data) == 0 {
		return nil, fmt.Errorf("%s: %w", s.label, ErrNoCA)
	}
	of := func(key string) entry {
		return entry{name: fmt.Sprintf("%s, key %s", s.label, key), data: secret.Data[key]}
	}
	ca, err := parseCA(entries{
		bundle: of(bundleKey), signers: of(certKey), key: of(keyKey),
		nexts: of(nextCertKey), nextKey: of(nextKeyKey), leaving: of(leavingKey),
	})
	if err != nil {
		return nil, &InvalidError{Err: err, version: secret.ResourceVersion}
	}
	ca.version = secret.ResourceVersion
	_, ca.requested = secret.Annotations[rotateAnnotation]
	return ca, nil
}

func storedData(ca *CA) (map[string][]byte, error) {
	data := map[string][]byte{bundleKey: encode(ca.bundle...), certKey: encode(ca.signer.cert)}
	var err error
	if data[keyKey], err = keyutil.MarshalPrivateKeyToPEM(ca.signer.key); err != nil {
		return nil, fmt.Errorf("encoding the key of the CA: %w", err)
	}
	if ca.next != nil {
		data[nextCertKey] = encode(ca.next.cert)
		if data[nextKeyKey], err = keyutil.MarshalPrivateKeyToPEM(ca.next.key); err != nil {
			return nil, fmt.Errorf("encoding the key of the next CA: %w", err)
		}
	}
	if len(ca.leaving) > 0 {
		if data[leavingKey], err = json.Marshal(ca.leaving); err != nil {
			return nil, fmt.Errorf("encoding what leaves: %w", err)
		}
	}
	return data, nil
}
