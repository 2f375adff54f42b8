package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is the user and the group of the process. It has no name in the image.
	user = "65532:65532"
	// program is the only file of the image, also if the binary is another program with plugins of its own.
	program = "postern"
	// source is the module of Postern.
	source = "github.com/postern-dev/postern"

	titleLabel = "org.opencontainers.image.title"
)

// archive writes an OCI archive with one image for the platform of each binary.
func archive(binaries []string, r release, to string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var labels map[string]string
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return fmt.Errorf("image of %s: %w", binary, err)
		}
		labels = r.labels(filepath.Base(binary), info.Main.Path)
		img, platform, err := image(binary, info, r.made, labels)
		if err != nil {
			return fmt.Errorf("image of %s: %w", binary, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	index, ok := mutate.Annotations(index, labels).(v1.ImageIndex)
	if !ok {
		return errors.New("an index with annotations is no index")
	}
	dir, err := os.MkdirTemp("", "postern-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// containerd gives the image this name when it imports the archive.
	names := map[string]string{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/library/" + labels[titleLabel] + ":" + r.version}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	return create(to, func(out io.Writer) error {
		w := tar.NewWriter(out)
		return errors.Join(addFolder(w, dir, r.made, func(name string, data []byte) (string, []byte) { return name, data }), w.Close())
	})
}

// labels are labels of the images, and annotations of their index. The description, the source and the licence are known
// only for Postern's own module.
func (r release) labels(binary, module string) map[string]string {
	out := map[string]string{
		titleLabel:                         binary,
		"org.opencontainers.image.version": r.version,
	}
	if module == source {
		out["org.opencontainers.image.description"] = "kube-apiserver's admission plugins as admission webhooks"
		out["org.opencontainers.image.source"] = "https://" + source
		out["org.opencontainers.image.licenses"] = "Apache-2.0"
	}
	if r.revision != "" {
		out["org.opencontainers.image.revision"] = r.revision
	}
	return out
}

// image returns the image of a binary, and its platform, which the binary itself knows.
func image(binary string, info *buildinfo.BuildInfo, made time.Time, labels map[string]string) (v1.Image, *v1.Platform, error) {
	platform, err := platformOf(info)
	if err != nil {
		return nil, nil, err
	}
	content, err := layer(binary, made)
	if err != nil {
		return nil, nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "make image"}})
	if err != nil {
		return nil, nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, nil, err
	}
	file = file.DeepCopy()
	file.Created, file.OS, file.Architecture = v1.Time{Time: made}, platform.OS, platform.Architecture
	file.Config = v1.Config{User: user, Entrypoint: []string{"/" + program}, WorkingDir: "/", Labels: labels}
	img, err = mutate.ConfigFile(img, file)
	return img, platform, err
}

// platformOf returns the platform that a Go binary was built for. It fails if the binary needs a C library, because the
// image has none.
func platformOf(info *buildinfo.BuildInfo) (*v1.Platform, error) {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" {
		return nil, fmt.Errorf("it was built with CGO_ENABLED=%q, want 0", settings["CGO_ENABLED"])
	}
	if settings["GOOS"] != "linux" {
		return nil, fmt.Errorf("it was built for %s, want linux", settings["GOOS"])
	}
	return &v1.Platform{OS: settings["GOOS"], Architecture: settings["GOARCH"]}, nil
}

// layer returns a tar archive with the binary as its only file.
func layer(binary string, made time.Time) ([]byte, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err = errors.Join(add(w, program, 0o555, made, data), w.Close())
	return out.Bytes(), err
}
