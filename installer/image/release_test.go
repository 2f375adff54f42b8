package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"
)

// sizeLimit is in bytes. The binary is the largest part of what a node pulls before it can start Postern.
const sizeLimit = 45_000_000

// TestRelease makes a release for one platform twice, and links the program each time.
func TestRelease(t *testing.T) {
	const image = "registry.example.com/postern:v1"
	root, platform := filepath.Join("..", ".."), "linux-"+runtime.GOARCH
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		if err := os.RemoveAll(filepath.Join(root, "bin", platform)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "make", "-C", root, "release",
			"RELEASE="+dir, "IMAGE="+image, "TAG=v1.2.3", "IMAGE_PLATFORMS="+platform, "RELEASE_PLATFORMS="+platform)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make release: %v: %s", err, out)
		}
	}
	released := func(name string) []byte { return read(t, filepath.Join(dirs[0], name)) }
	if one, two := released(sums), read(t, filepath.Join(dirs[1], sums)); !bytes.Equal(one, two) {
		t.Errorf("Got the checksums\n%sand then\n%s", one, two)
	}
	var names []string
	for line := range strings.Lines(string(released(sums))) {
		names = append(names, strings.Fields(line)[1])
	}
	program := "postern-" + platform
	want := fmt.Sprint([]string{"flowcontrol.yaml", "postern-chart.tgz", "postern-image.tar", program, program + ".spdx.json", "postern.yaml"})
	if got := fmt.Sprint(names); got != want {
		t.Errorf("The release has the files %s, want %s", got, want)
	}
	if size := len(released(program)); size > sizeLimit {
		t.Errorf("The binary has %d bytes, want at most %d", size, sizeLimit)
	}
	if manifest := string(released("postern.yaml")); strings.Contains(manifest, "postern:dev") || !strings.Contains(manifest, " image: "+image+"\n") {
		t.Errorf("The manifest lacks the image %s", image)
	}
	if got, want := imageValues(t, filepath.Join(dirs[0], "postern-chart.tgz")), `repository: "registry.example.com/postern", tag: "v1", digest: ""`; got != want {
		t.Errorf("The chart has the image %s, want %s", got, want)
	}
	testSBOM(t, filepath.Join(dirs[0], program), released(program+".spdx.json"))
}

// testSBOM compares a list of modules with the modules in the binary.
func testSBOM(t *testing.T, binary string, text []byte) {
	t.Helper()
	doc, err := spdxjson.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range doc.Packages {
		found[p.PackageName] = p.PackageVersion
	}
	want := map[string]string{"github.com/postern-dev/postern": "v1.2.3", "stdlib": strings.TrimPrefix(info.GoVersion, "go")}
	for _, dep := range info.Deps {
		want[dep.Path] = dep.Version
	}
	if got, want := fmt.Sprint(found), fmt.Sprint(want); got != want || len(info.Deps) < 10 {
		t.Errorf("Got the packages %s, want %s", got, want)
	}
	if len(doc.Relationships) != len(doc.Packages) || doc.Relationships[0].Relationship != "DESCRIBES" {
		t.Errorf("Got %d relationships of %d packages, want that the document describes the program, which contains the others", len(doc.Relationships), len(doc.Packages))
	}
}
