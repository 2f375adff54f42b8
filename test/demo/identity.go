package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	namespace      = "postern-system"
	serviceAccount = "postern"
	// tokenLife is longer than any run of the demo, because nothing renews the token outside a pod.
	tokenLife = "168h"
)

const identity = `
apiVersion: v1
kind: Namespace
metadata: {name: ` + namespace + `}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: ` + serviceAccount + `, namespace: ` + namespace + `}
`

// define applies the CustomResourceDefinitions of the installer and waits until the API server serves them.
func (d *demo) define(ctx context.Context) error {
	crds := filepath.Join(d.installer, "crds")
	if _, err := d.kubectl(ctx, "", "apply", "-f", crds); err != nil {
		return err
	}
	_, err := d.kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=30s", "-f", crds)
	return err
}

// printRoles has Postern print its roles, before anything is started. It fails if a plugin does not exist.
func (d *demo) printRoles(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, d.options.postern, "rbac", "--enable-admission-plugins="+strings.Join(d.plugins, ",")) //nolint:gosec // It is our binary.
	var said strings.Builder
	cmd.Stderr = &said
	roles, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("printing postern's roles: %w: %s", err, strings.TrimSpace(said.String()))
	}
	d.roles = string(roles)
	return nil
}

// identify creates Postern's namespace and service account with the roles that the rbac command prints, and
// returns a kubeconfig for that account. So the demo shows that these rights are sufficient.
func (d *demo) identify(ctx context.Context) (string, error) {
	if _, err := d.kubectl(ctx, identity, "apply", "-f", "-"); err != nil {
		return "", err
	}
	if _, err := d.kubectl(ctx, d.roles, "apply", "-f", "-"); err != nil {
		return "", err
	}
	token, err := d.kubectl(ctx, "", "create", "token", serviceAccount, "-n", namespace, "--duration="+tokenLife)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: postern
contexts:
- name: postern
  context: {cluster: postern, user: postern}
clusters:
- name: postern
  cluster: {server: %q, certificate-authority: %q}
users:
- name: postern
  user: {token: %q}
`, d.control.URL(), d.control.CAFile(), strings.TrimSpace(token))
	path := filepath.Join(d.folder, "postern", "kubeconfig")
	return path, os.WriteFile(path, []byte(text), 0o600)
}
