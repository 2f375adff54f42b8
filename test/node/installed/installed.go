//go:build linux

// Package installed tests Postern as users install it: with the image, the chart and the manifests, on a real node.
package installed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ExampleRegistry is the registry that the README names. Its commands run with the registry of the cluster instead.
const ExampleRegistry = "registry.example.com"

// Shell runs command lines as a user does. Each line runs in the shell bash.
type Shell struct {
	Dir         string
	Environment []string
}

// Run runs a line and returns its output. The error contains the output too.
func (s Shell) Run(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", line) //nolint:gosec // It is our caller's line.
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), s.Environment...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return output.String(), fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(output.String()))
	}
	return output.String(), nil
}

// BuildHelm builds the helm command, at the version of the chart's tests, into a folder.
func BuildHelm(ctx context.Context, root, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(root, "test", "helm"), "-o", filepath.Join(dir, "helm"), "helm.sh/helm/v3/cmd/helm") //nolint:gosec // It is our go command.
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("building helm: %w", err), errors.New(string(text)))
	}
	return nil
}
