package app

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/postern-dev/postern/internal/segment"
	"github.com/postern-dev/postern/pkg/certs"
	"github.com/postern-dev/postern/pkg/registration"
)

// bundle is the CA bundle that the registrar registers with the API server.
type bundle struct{ certs.Source }

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
		return p.sharedKey.Keys()
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
	registered := func(ctx context.Context) ([]string, error) {
		return registration.RegisteredSegments(ctx, p.cluster.dynamic, p.deployment)
	}
	p.sharedKey = segment.Share(p.cluster.client.CoreV1().Secrets(p.webhookNamespace), p.webhookNamespace, p.segments, registered)
	p.sharedKey.Notify = p.notices.tell
	return p.sharedKey.Start(ctx)
}
