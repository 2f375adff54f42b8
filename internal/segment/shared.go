package segment

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
)

const (
	// SecretName is the Secret with the key that the replicas share if they have no CA to derive keys from.
	SecretName = "postern-path"
	// field is the field of the Secret with the key, and keyBytes the least length of a key.
	field    = "key"
	keyBytes = 32
	// readInterval is how often the Secret is read, and readTimeout how long that may take.
	readInterval = 10 * time.Second
	readTimeout  = 10 * time.Second
	// EventRestored is the reason of the Event about a Secret that was written again.
	EventRestored = "PathKeyRestored"
)

// Shared is a key in a Secret that the replicas share. It needs permission to get the Secret and to create Secrets.
type Shared struct {
	// Notify, if not nil, is called with the type, the reason and the message of an Event. It must not block.
	Notify func(eventType, reason, message string)

	set        *Set
	secrets    typedcorev1.SecretInterface
	namespace  string
	registered func(context.Context) ([]string, error)
	key        atomic.Pointer[[]byte]
	// failing is true if the last look failed.
	failing bool
}

// Share returns the key in the Secret, which Start reads. The Set is told of another key. registered returns the segments that are
// registered now, not those in a cache: a Secret that an uninstallation has deleted must not be written again.
func Share(secrets typedcorev1.SecretInterface, namespace string, set *Set, registered func(context.Context) ([]string, error)) *Shared {
	return &Shared{secrets: secrets, namespace: namespace, set: set, registered: registered}
}

// Keys returns the key that was read last, or nothing.
func (s *Shared) Keys() [][]byte {
	if key := s.key.Load(); key != nil {
		return [][]byte{*key}
	}
	return nil
}

// Start reads the key, or creates it. There is no key while the namespace does not exist.
func (s *Shared) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	secret, err := s.secrets.Get(ctx, SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh := make([]byte, keyBytes)
		if _, err := rand.Read(fresh); err != nil {
			return fmt.Errorf("making the key of the path: %w", err)
		}
		secret, err = s.create(ctx, fresh)
		if apierrors.IsAlreadyExists(err) { // Another replica created the Secret first.
			secret, err = s.secrets.Get(ctx, SecretName, metav1.GetOptions{})
		}
	}
	if apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Info("Serving the webhooks at a path that can be guessed: there is no namespace for a Secret, and no --client-ca-file", "namespace", s.namespace)
		return nil
	}
	key, err := s.parse(secret, err)
	if err != nil {
		return err
	}
	s.use(ctx, key)
	return nil
}

// Run keeps reading the key until ctx ends. It writes a lost Secret again while the segment of its key is registered.
func (s *Shared) Run(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, s.look, readInterval, 0, false)
	return nil
}

// look reads the key. It logs an outage when it begins and when it ends.
func (s *Shared) look(ctx context.Context) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := s.refresh(reading)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !s.failing:
		klog.FromContext(ctx).Error(err, "The key of the paths cannot be read or written, the one at hand stays in use")
	case err == nil && s.failing:
		klog.FromContext(ctx).Info("The key of the paths can be read and written again")
	}
	s.failing = err != nil
	s.set.announce()
}

func (s *Shared) refresh(ctx context.Context) error {
	secret, err := s.secrets.Get(ctx, SecretName, metav1.GetOptions{})
	if key := s.key.Load(); apierrors.IsNotFound(err) {
		if key == nil {
			return nil // There was no namespace at the start.
		}
		return s.restore(ctx, *key)
	}
	key, err := s.parse(secret, err)
	if err != nil {
		return err
	}
	s.use(ctx, key)
	return nil
}

// restore writes a lost Secret again. An uninstallation deletes the configurations before the Secret.
func (s *Shared) restore(ctx context.Context, key []byte) error {
	registered, err := s.registered(ctx)
	if err != nil || !slices.Contains(registered, Of(key)) {
		return err
	}
	_, err = s.create(ctx, key)
	if apierrors.IsAlreadyExists(err) {
		return nil // The next look reads it.
	}
	if err != nil {
		return fmt.Errorf("writing secret %s/%s again: %w", s.namespace, SecretName, err)
	}
	klog.FromContext(ctx).Info("Wrote the key of the paths again", "namespace", s.namespace, "secret", SecretName)
	if s.Notify != nil {
		s.Notify(corev1.EventTypeWarning, EventRestored, "The Secret "+SecretName+" was missing, and was written again")
	}
	return nil
}

func (s *Shared) create(ctx context.Context, key []byte) (*corev1.Secret, error) {
	return s.secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: SecretName}, Data: map[string][]byte{field: key},
	}, metav1.CreateOptions{})
}

// parse returns the key in a Secret, of which err is the error of the call that returned it.
func (s *Shared) parse(secret *corev1.Secret, err error) ([]byte, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("secret %s/%s: %w", s.namespace, SecretName, err)
	case len(secret.Data[field]) < keyBytes:
		return nil, fmt.Errorf("secret %s/%s: %s has less than %d bytes: delete the Secret", s.namespace, SecretName, field, keyBytes)
	}
	return secret.Data[field], nil
}

// use takes a key. The segment that is registered stays so until the other replicas have read the key too.
func (s *Shared) use(ctx context.Context, key []byte) {
	old := s.key.Load()
	if old != nil && bytes.Equal(*old, key) {
		return
	}
	if old == nil {
		s.set.replace(nil)
	} else {
		s.set.replace(*old)
		klog.FromContext(ctx).Info("There is another key of the paths. The paths of both are accepted", "namespace", s.namespace, "secret", SecretName, "registeredAfter", settleTime)
	}
	s.key.Store(&key)
}
