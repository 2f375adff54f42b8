package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/postern-dev/postern/test/controlplane/process"
)

// documentedImages is the folder of the image policy backend's client in the examples' configuration.
const documentedImages = "/etc/postern/image-policy"

// startImageBackend builds and starts the backend of ImagePolicyWebhook, and copies Postern's configuration with the
// path of the backend's kubeconfig.
func (d *demo) startImageBackend(ctx context.Context) error {
	if !slices.Contains(d.plugins, "ImagePolicyWebhook") || d.config != d.set.Config() {
		return nil
	}
	folder := filepath.Join(d.folder, "image-policy")
	backend := filepath.Join(d.folder, "imagepolicy-backend")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(d.examples, "imagepolicy-backend"), "-o", backend, ".") //nolint:gosec // The caller names the folder.
	build.Stdout, build.Stderr = d.out, d.out
	if err := d.during("building the image policy backend", build.Run); err != nil {
		return fmt.Errorf("building the image policy backend: %w", err)
	}
	address, _, err := freePorts(ctx)
	if err != nil {
		return err
	}
	certificates := exec.CommandContext(ctx, backend, "certificates", "--dir="+folder, "--server="+address) //nolint:gosec // The demo built it.
	if output, err := certificates.CombinedOutput(); err != nil {
		return fmt.Errorf("making certificates of the image policy backend: %w: %s", err, output)
	}
	d.images, err = process.StartLogged(filepath.Join(d.folder, "imagepolicy-backend.log"), nil, backend, "serve", "--dir="+folder,
		"--address="+address, "--allow=ghcr.io/acme", "--exempt-namespaces=default,kube-system,pod-security")
	if err != nil {
		return err
	}
	if err := d.await(ctx, "the image policy backend", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}); err != nil {
		return err
	}
	text, err := os.ReadFile(d.config)
	if err != nil {
		return err
	}
	d.config = filepath.Join(d.folder, "postern", "admission.yaml")
	return os.WriteFile(d.config, bytes.ReplaceAll(text, []byte(documentedImages), []byte(folder)), 0o600)
}
