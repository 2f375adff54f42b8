package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// User is the name of a user who has a token for the API server. To act as any other user, impersonate the
// user as Admin (kubectl --as).
type User string

const (
	// Admin may do everything: the group is system:masters.
	Admin User = "admin"
	// Alice is in the group developers and has only the rights of every authenticated user.
	Alice User = "alice"
	// Node is the kubelet of node-1, in the group system:nodes, with the rights the node authorizer gives.
	Node User = "system:node:node-1"
	// controllerManager has its rights from the API server's built-in roles.
	controllerManager User = "system:kube-controller-manager"
)

// groups maps every user to the user's group, or to an empty string.
func groups() map[User]string {
	return map[User]string{
		Admin: "system:masters", Alice: "developers", Node: "system:nodes", controllerManager: "",
	}
}

func newTokens() map[User]string {
	tokens := map[User]string{}
	for user := range groups() {
		tokens[user] = rand.Text()
	}
	return tokens
}

// writeTokens writes the file for --token-auth-file: token, name, uid, groups.
func writeTokens(path string, tokens map[User]string) error {
	var b strings.Builder
	for user, group := range groups() {
		fmt.Fprintf(&b, "%s,%s,%s,%q\n", tokens[user], user, user, group)
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// writeKubeconfigs writes a kubeconfig for each user. It needs the certificate authority that the API server
// creates at its first start.
func (c *ControlPlane) writeKubeconfigs(ca []byte) error {
	for user, token := range c.tokens {
		text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: postern
contexts:
- name: postern
  context: {cluster: postern, user: %[1]q}
clusters:
- name: postern
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]q
  user: {token: %[4]q}
`, user, c.serverURL, base64.StdEncoding.EncodeToString(ca), token)
		if err := os.WriteFile(c.Kubeconfig(user), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeServiceAccountKey creates the key that signs service account tokens. It keeps the key of an earlier
// control plane in this folder, because tokens signed with that key are still in use.
func writeServiceAccountKey(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
