//go:build linux

package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// certificateLife is longer than any node lives.
const certificateLife = 30 * 24 * time.Hour

// The users of the cluster, and the file of each user's kubeconfig below the folder of the node.
type user struct{ file, name, group string }

func users() []user {
	return []user{
		{"kubeconfig", "admin", "system:masters"},
		{"alice.kubeconfig", "alice", "developers"},
		{"kube/controller-manager", "system:kube-controller-manager", ""},
		{"kube/scheduler", "system:kube-scheduler", ""},
		{"kube/proxy", "system:kube-proxy", ""},
		{"kube/node", "system:node:" + NodeName, "system:nodes"},
	}
}

// authority signs the certificates of a cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// writeKeys writes the CA, the certificates, the key of service accounts, the tokens and the kubeconfigs.
func (s *settings) writeKeys() error {
	ca := &authority{}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "node-ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if err := ca.issue(s.path("pki/ca"), template); err != nil {
		return err
	}
	for name, template := range map[string]*x509.Certificate{
		"apiserver": {
			Subject:     pkix.Name{CommonName: "kube-apiserver"},
			IPAddresses: []net.IP{net.ParseIP(s.ip()), net.IPv4(127, 0, 0, 1), net.ParseIP(firstService)},
			DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		},
		"kubelet": {
			Subject:     pkix.Name{CommonName: "system:node:" + NodeName, Organization: []string{"system:nodes"}},
			IPAddresses: []net.IP{net.ParseIP(s.ip())}, DNSNames: []string{NodeName},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		},
		"apiserver-kubelet": {
			Subject:     pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		},
	} {
		if err := ca.issue(s.path("pki", name), template); err != nil {
			return err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err == nil {
		err = writeKey(s.path("pki/service-accounts.key"), key)
	}
	if err != nil {
		return err
	}
	return s.writeUsers()
}

// issue writes a certificate and its key. The first certificate that an authority issues is its own.
func (a *authority) issue(path string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(certificateLife)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	if a.certificate == nil {
		if a.certificate, err = x509.ParseCertificate(der); err != nil {
			return err
		}
		a.key = key
	}
	if err := os.WriteFile(path+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return err
	}
	return writeKey(path+".key", key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// writeUsers writes the file of --token-auth-file (token, name, uid, groups) and a kubeconfig for each user.
func (s *settings) writeUsers() error {
	var tokens strings.Builder
	for _, u := range users() {
		token := rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s,%s\n", token, u.name, u.name, u.group)
		text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: node
contexts:
- name: node
  context: {cluster: node, user: %[1]q}
clusters:
- name: node
  cluster: {server: "https://%[2]s:6443", certificate-authority: %[3]s}
users:
- name: %[1]q
  user: {token: %[4]q}
`, u.name, s.ip(), s.path("pki/ca.crt"), token)
		if err := os.WriteFile(s.path(u.file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(s.path("pki/tokens.csv"), []byte(tokens.String()), 0o600)
}
