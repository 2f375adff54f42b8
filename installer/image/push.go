package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push pushes an OCI archive to a registry, with the credentials of the docker configuration, and prints the reference
// with the digest.
func push(ctx context.Context, from, to string) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "postern-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
	if err := unpack(from, dir); err != nil {
		return err
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return errors.New(from + " does not hold one image")
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	fmt.Printf("%s@%s\n", ref.Context(), manifest.Manifests[0].Digest)
	return nil
}
