package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"

	"github.com/postern-dev/postern/test/controlplane/process"
)

// allowedImages is the registry whose images the backend admits, if they have a digest.
const allowedImages = "ghcr.io/acme"

// startImageBackend builds and starts the backend of ImagePolicyWebhook, with the client's files in a folder.
func (d *demo) startImageBackend(ctx context.Context, folder string) error {
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
		"--address="+address, "--allow="+allowedImages, "--exempt-namespaces=default,kube-system,pod-security")
	if err != nil {
		return err
	}
	return d.await(ctx, "the image policy backend", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
