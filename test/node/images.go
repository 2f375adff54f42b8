//go:build linux

package node

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// unprivileged is the user and the group of the images.
const unprivileged = "65532:65532"

// File is a file of an image.
type File struct {
	Path string // in the image
	From string // on this machine
}

// serveRegistry serves a registry, in memory, until the process ends.
func serveRegistry(address string) error {
	listener, err := net.Listen("tcp", address) //nolint:noctx // It ends with the keeper.
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	return nil
}

// push makes an image of static programs and pushes it. The first file is the entry point.
func push(ctx context.Context, reference string, files []File) error {
	ref, err := name.ParseReference(reference, name.Insecure)
	if err != nil {
		return err
	}
	image, err := makeImage(files)
	if err != nil {
		return err
	}
	return remote.Write(ref, image, remote.WithContext(ctx))
}

// saveImage writes an image to an archive for ctr.
func saveImage(reference, archive string, files []File) error {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	image, err := makeImage(files)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, ref, image)
}

// makeImage makes an image of one layer.
func makeImage(files []File) (v1.Image, error) {
	if len(files) == 0 {
		return nil, errors.New("an image needs a file")
	}
	text, err := layerOf(files)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Config.Entrypoint, file.Config.User = []string{files[0].Path}, unprivileged
	file.Config.Env = []string{"PATH=" + systemPath}
	return mutate.ConfigFile(image, file)
}

func layerOf(files []File) ([]byte, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	made := map[string]bool{}
	for _, f := range files {
		if err := writeParents(w, made, path.Dir(strings.TrimPrefix(f.Path, "/"))); err != nil {
			return nil, err
		}
		content, err := os.ReadFile(f.From)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), w.Close()
}

// writeParents writes a folder and those that it is in, the outermost first.
func writeParents(w *tar.Writer, made map[string]bool, dir string) error {
	if dir == "." || made[dir] {
		return nil
	}
	if err := writeParents(w, made, path.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	return w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755})
}
