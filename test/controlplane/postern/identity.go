package postern

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/postern-dev/postern/test/controlplane"
)

const (
	namespace      = "postern-system"
	serviceAccount = "postern"
	// tokenLife is longer than any test, because nothing renews the token outside a pod.
	tokenLife = "24h"
)

const account = `
apiVersion: v1
kind: Namespace
metadata: {name: ` + namespace + `}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: ` + serviceAccount + `, namespace: ` + namespace + `}
`

// identify creates Postern's namespace and service account with the roles that its rbac command prints, and
// returns the path of a kubeconfig for that account.
func identify(ctx context.Context, c *controlplane.ControlPlane, o Options) (string, error) {
	apply := c.Kubectl(ctx, controlplane.Admin, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(account)
	if _, err := output(apply); err != nil {
		return "", err
	}
	roles, err := output(exec.CommandContext(ctx, o.Binary, "rbac", "--admission-control="+strings.Join(o.Plugins, ",")))
	if err != nil {
		return "", err
	}
	grant := c.Kubectl(ctx, controlplane.Admin, "apply", "-f", "-")
	grant.Stdin = strings.NewReader(roles)
	if _, err := output(grant); err != nil {
		return "", err
	}
	token, err := output(c.Kubectl(ctx, controlplane.Admin,
		"create", "token", serviceAccount, "--namespace="+namespace, "--duration="+tokenLife))
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
`, c.URL(), c.CAFile(), strings.TrimSpace(token))
	path := filepath.Join(o.Dir, "kubeconfig")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// output runs a command and returns its standard output. The error contains the standard error.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return string(out), nil
}
