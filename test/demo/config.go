package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/postern-dev/postern/test/controlplane"
)

const (
	// documentedHub is the kubeconfig of FleetQuota's hub in the examples' configuration.
	documentedHub = "/etc/postern/hub.kubeconfig"
	// documentedImages is the folder of the image policy backend's client there.
	documentedImages = "/etc/postern/image-policy"
)

// prepareConfig copies the examples' configuration with the paths of this demo, and starts the servers that it names. The
// control plane is its own hub.
func (d *demo) prepareConfig(ctx context.Context) error {
	if d.config == "" || d.config != d.set.Config() {
		return nil
	}
	images := filepath.Join(d.folder, "image-policy")
	if slices.Contains(d.plugins, "ImagePolicyWebhook") {
		if err := d.startImageBackend(ctx, images); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(d.config)
	if err != nil {
		return err
	}
	paths := strings.NewReplacer(documentedImages, images, documentedHub, d.control.Kubeconfig(controlplane.Admin))
	d.config = filepath.Join(d.folder, "postern", "admission.yaml")
	return os.WriteFile(d.config, []byte(paths.Replace(string(text))), 0o600)
}
