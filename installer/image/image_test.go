package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

var now = release{version: "v1.2.3", revision: "abc", made: time.Unix(1700000000, 0).UTC()}

// binary builds a small program for a platform.
func binary(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/small\n\ngo 1.26.0\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "binary", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), append([]string{"GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0"}, env...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("Building for %v: %v: %s", env, err, out)
	}
	return filepath.Join(dir, "binary")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestImage pushes an archive to a registry and looks at what a node would pull.
func TestImage(t *testing.T) {
	binaries := []string{binary(t, "GOOS=linux", "GOARCH=amd64"), binary(t, "GOOS=linux", "GOARCH=arm64")}
	dir := t.TempDir()
	one, two := filepath.Join(dir, "1.tar"), filepath.Join(dir, "2.tar")
	for _, to := range []string{one, two} {
		if err := archive(binaries, now, to); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(read(t, one), read(t, two)) {
		t.Error("Two archives of the same binaries differ")
	}
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	to := strings.TrimPrefix(server.URL, "http://") + "/postern:v1"
	if err := push(t.Context(), one, to); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2 || manifest.Annotations["org.opencontainers.image.version"] != "v1.2.3" {
		t.Fatalf("Got the manifest %+v", manifest)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		if p := manifest.Manifests[i].Platform; p == nil || p.OS != "linux" || p.Architecture != arch {
			t.Errorf("Got the platform %v, want linux/%s", p, arch)
		}
		img, err := index.Image(manifest.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/postern"}) || c.Labels["org.opencontainers.image.revision"] != "abc" || config.Architecture != arch || !config.Created.Equal(now.made) {
			t.Errorf("Got the configuration %+v", config)
		}
		if labels := config.Config.Labels; labels[titleLabel] != "binary" || labels["org.opencontainers.image.source"] != "" {
			t.Errorf("Got the labels %q, want the name of the binary, and nothing about Postern", labels)
		}
		files := map[string][]byte{}
		content := mutate.Extract(img)
		for r := tar.NewReader(content); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Mode != 0o555 || h.Uid != 0 {
				t.Errorf("Got the file %+v, want that root owns it and nobody writes it", h)
			}
			files[h.Name], err = io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
		}
		_ = content.Close()
		if len(files) != 1 || !bytes.Equal(files["postern"], read(t, binaries[i])) {
			t.Errorf("Got %d files, want the binary for %s", len(files), arch)
		}
	}
}

func TestLabels(t *testing.T) {
	labels := now.labels(program, source)
	if labels[titleLabel] != program || labels["org.opencontainers.image.source"] != "https://"+source || labels["org.opencontainers.image.licenses"] == "" {
		t.Errorf("Got the labels %q, want those of Postern", labels)
	}
}

func TestOtherBinaries(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{
		"want linux":             binary(t, "GOOS=darwin", "GOARCH=arm64"),
		`CGO_ENABLED="1", want`:  binary(t, "CGO_ENABLED=1"),
		"unrecognized file form": text,
	} {
		if err := archive([]string{path}, now, filepath.Join(dir, "image.tar")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got the error %v, want %s", err, want)
		}
	}
}

func TestBrokenArchives(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside.tar")
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	if err := errors.Join(add(w, "../escaped", 0o644, now.made, []byte("x")), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside, content.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := push(t.Context(), outside, "localhost:1/x:y"); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("Got the error %v, want one about a path that escapes", err)
	}
	if err := push(t.Context(), filepath.Join(dir, "missing"), "localhost:1/x:y"); err == nil {
		t.Error("Got no error for a missing archive")
	}
}

func TestChart(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "1.tgz"), filepath.Join(dir, "2.tgz")
	for _, to := range []string{one, two} {
		if err := chart(filepath.Join("..", "helm", "postern"), now, to); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(read(t, one), read(t, two)) {
		t.Error("Two archives of the chart differ")
	}
	files := unpacked(t, one)
	if text := files["postern/Chart.yaml"]; !strings.Contains(text, "\nversion: 1.2.3\nappVersion: \"v1.2.3\"\n") {
		t.Errorf("Got the Chart.yaml %s", text)
	}
	if files["postern/templates/deployment.yaml"] == "" || files["postern/values.schema.json"] == "" {
		t.Errorf("Got %d files without the templates or the schema", len(files))
	}
}

// unpacked returns the files in the archive of a chart.
func unpacked(t *testing.T, archive string) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(read(t, archive)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(data)
	}
}

// imageValues returns what the values of a chart say about the image, without comments.
func imageValues(t *testing.T, archive string) string {
	t.Helper()
	_, text, _ := strings.Cut(unpacked(t, archive)["postern/values.yaml"], "\nimage:\n")
	var out []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "  ") {
			break
		}
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return strings.Join(out[:3], ", ")
}

func TestChartInstallsTheImage(t *testing.T) {
	sum := "sha256:" + strings.Repeat("0a", 32)
	for image, want := range map[string]string{
		"":                              `repository: postern, tag: "", digest: ""`,
		"registry.example.com/p/q:v1":   `repository: "registry.example.com/p/q", tag: "v1", digest: ""`,
		"registry.example.com:5000/p":   `repository: "registry.example.com:5000/p", tag: "latest", digest: ""`,
		"registry.example.com/p@" + sum: `repository: "registry.example.com/p", tag: "", digest: "` + sum + `"`,
		"localhost:5000/p:v1@" + sum:    `repository: "localhost:5000/p", tag: "v1", digest: "` + sum + `"`,
	} {
		t.Run(image, func(t *testing.T) {
			r, to := now, filepath.Join(t.TempDir(), "chart.tgz")
			r.image = image
			if err := chart(filepath.Join("..", "helm", "postern"), r, to); err != nil {
				t.Fatal(err)
			}
			if got := imageValues(t, to); got != want {
				t.Errorf("Got %s, want %s", got, want)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-4-gabc-dirty": "1.2.3-4-gabc-dirty", "0123456": "0.0.0-g0123456", "a b": "0.0.0-ga-b"} {
		if got := semver(version); got != want {
			t.Errorf("Got the version %s of %s, want %s", got, version, want)
		}
	}
}

func TestChecksums(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // The second time there is a file of checksums.
		if err := checksums(dir); err != nil {
			t.Fatal(err)
		}
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "-c", sums)
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil || string(out) != "a: OK\nb: OK\n" {
		t.Errorf("sha256sum -c: %v: %s", err, out)
	}
}
