package app

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/pkg/certs"
)

const (
	// pathSecret is the Secret with the key that the webhooks' path is derived
	// from, if Postern has no CA to derive the path from.
	pathSecret = "postern-path"
	pathField  = "key"
	// pathKeyBytes is the length of the keys of certs.Source.
	pathKeyBytes = 32
)

// bundle is the CA bundle and the path keys that the registrar registers with the
// API server.
type bundle struct {
	certs.Source

	keys func() [][]byte
}

// PathKeys implements registration.Bundle.
func (b bundle) PathKeys() [][]byte { return b.keys() }

// ValidFor implements registration.Bundle.
func (b bundle) ValidFor(host string) (bool, error) {
	cert, err := b.GetCertificate(&tls.ClientHelloInfo{ServerName: host})
	if err != nil {
		return false, fmt.Errorf("serving certificate: %w", err)
	}
	return cert.Leaf.VerifyHostname(host) == nil, nil
}

// pathKeys returns the keys of Postern's own CAs, or the shared key of the replicas
// if there is no such CA.
func (p *process) pathKeys() [][]byte {
	if p.sharedKey != nil {
		return [][]byte{p.sharedKey}
	}
	return p.certs.PathKeys()
}

// shareKey reads or creates the key that the replicas share if the certificate is
// managed outside Postern. No key is needed if callers authenticate with a client
// certificate.
func (p *process) shareKey(ctx context.Context) error {
	if p.tlsCert == "" || p.clientCA != "" {
		return nil
	}
	secrets := p.cluster.client.CoreV1().Secrets(p.webhookNamespace)
	fresh := make([]byte, pathKeyBytes)
	if _, err := rand.Read(fresh); err != nil {
		return fmt.Errorf("making the key of the path: %w", err)
	}
	secret, err := secrets.Get(ctx, pathSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: pathSecret}, Data: map[string][]byte{pathField: fresh},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // Another replica created the Secret first.
			secret, err = secrets.Get(ctx, pathSecret, metav1.GetOptions{})
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		klog.FromContext(ctx).Info("Serving the webhooks at a path that can be guessed: there is no namespace for a Secret, and no --client-ca-file", "namespace", p.webhookNamespace)
		return nil
	case err != nil:
		return fmt.Errorf("secret %s/%s: %w", p.webhookNamespace, pathSecret, err)
	case len(secret.Data[pathField]) < pathKeyBytes:
		return fmt.Errorf("secret %s/%s: %s has less than %d bytes; delete the Secret and restart", p.webhookNamespace, pathSecret, pathField, pathKeyBytes)
	}
	p.sharedKey = secret.Data[pathField]
	return nil
}
