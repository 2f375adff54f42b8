package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/postern-dev/postern/pkg/certs"
)

func (b *bench) certFile() string   { return filepath.Join(b.dir, "tls.crt") }
func (b *bench) keyFile() string    { return filepath.Join(b.dir, "tls.key") }
func (b *bench) caFile() string     { return filepath.Join(b.dir, "ca.crt") }
func (b *bench) kubeconfig() string { return filepath.Join(b.dir, "kubeconfig") }
func (b *bench) configFile() string { return filepath.Join(b.dir, "admission.yaml") }

// admissionConfig is for the plugins that do not start, or deny every pod, without a configuration.
const admissionConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: AlwaysDeny
  configuration: {namespaces: [frozen]}
- name: InitialResources
  configuration: {vpa: {}}
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - {type: Server, qps: 5000, burst: 5000}
`

func (b *bench) posternBinary() string {
	if b.binary != "" {
		return b.binary
	}
	return filepath.Join(b.dir, "postern")
}

// build builds the servers, with the flags of a release. It builds Postern in Postern's own module, so that the
// binary has the released dependencies.
func (b *bench) build(ctx context.Context) error {
	type target struct{ dir, pkg, name string }
	targets := []target{{".", "./floor", "floor"}}
	if b.scaled {
		targets = append(targets, target{".", "./informers", "informers"})
	} else {
		targets = append(targets, target{".", "./peer", "peer"}, target{".", "./volcano", "volcano"},
			target{".", "k8s.io/pod-security-admission/cmd/webhook", "psa"})
	}
	if b.binary == "" {
		targets = append(targets, target{"../..", "./cmd/postern", "postern"})
	}
	for _, t := range targets {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(b.dir, t.name), t.pkg) //nolint:gosec // built here
		cmd.Dir, cmd.Env = t.dir, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", t.name, err, out)
		}
	}
	return nil
}

// writeFiles writes a serving certificate that all servers share, and the configuration of the plugins. It
// returns the CA of the certificate.
func (b *bench) writeFiles(ctx context.Context) (*x509.CertPool, error) {
	authority, err := certs.NewAuthority(ctx, certs.NewDirStore(filepath.Join(b.dir, "ca")), certs.Options{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, fmt.Errorf("making a CA: %w", err)
	}
	cert, err := authority.GetCertificate(nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	var chain []byte
	for _, der := range cert.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Bundle())
	return roots, errors.Join(
		os.WriteFile(b.certFile(), chain, 0o600),
		os.WriteFile(b.keyFile(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
		os.WriteFile(b.caFile(), authority.Bundle(), 0o600),
		os.WriteFile(b.configFile(), []byte(admissionConfig), 0o600),
	)
}

// writeKubeconfig writes a kubeconfig for the API server at a URL.
func (b *bench) writeKubeconfig(api string) error {
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"bench",
"clusters":[{"name":"bench","cluster":{"server":%q}}],
"contexts":[{"name":"bench","context":{"cluster":"bench","user":"bench"}}],
"users":[{"name":"bench","user":{}}]}`, api)
	if err := os.WriteFile(b.kubeconfig(), []byte(config), 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}
