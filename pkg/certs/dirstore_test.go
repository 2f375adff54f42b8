package certs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/pkg/certs"
)

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := fs.ReadFile(os.DirFS(dir), name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// replaceFile replaces a file atomically, so that no reader sees a partial file.
func replaceFile(t *testing.T, name string, data []byte) {
	t.Helper()
	write(t, name+".new", data)
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func TestProcessesShareOneFolder(t *testing.T) {
	for _, n := range []int{2, 20} {
		dir, clock := filepath.Join(t.TempDir(), "not", "there"), newClock()
		bundles := together(n, func() string {
			a, err := certs.NewAuthority(logging(t), certs.NewDirStore(dir), options(clock))
			if err != nil {
				return err.Error()
			}
			return string(a.Bundle())
		})
		want := string(read(t, dir, "ca.crt"))
		for i, got := range bundles {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Bundle of process %d of %d (-want +got):\n%s", i, n, diff)
			}
		}
		wantModes(t, dir, map[string]fs.FileMode{".": 0o700, "ca.crt": 0o644, "ca.key": 0o600})
	}
}

// wantModes checks that the folder contains exactly these files, with these permissions.
func wantModes(t *testing.T, dir string, want map[string]fs.FileMode) {
	t.Helper()
	got := map[string]fs.FileMode{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		got[path] = info.Mode().Perm()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Modes (-want +got):\n%s", diff)
	}
}

// A process that stops between writing the two files leaves a key. The next process uses this key for the CA.
func TestKeyWithoutCertificateIsCompleted(t *testing.T) {
	dir, clock := t.TempDir(), newClock()
	newAuthority(t, certs.NewDirStore(dir), options(clock))
	key := read(t, dir, "ca.key")
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	a := newAuthority(t, certs.NewDirStore(dir), options(clock))
	if diff := cmp.Diff(string(key), string(read(t, dir, "ca.key"))); diff != "" {
		t.Errorf("Key (-want +got):\n%s", diff)
	}
	if err := shake(t.Context(), listen(t, a), serverName, a.Bundle(), clock.Now()); err != nil {
		t.Errorf("Handshake: %v", err)
	}
}

func TestBrokenFolders(t *testing.T) {
	otherDir := t.TempDir()
	newAuthority(t, certs.NewDirStore(otherDir), options(newClock()))
	tests := map[string]struct {
		breakIt func(dir string) error
		want    string
	}{
		"no key": {
			func(dir string) error { return os.Remove(filepath.Join(dir, "ca.key")) },
			"reading the key of the CA: ",
		},
		"another's key": {
			func(dir string) error {
				return os.Rename(filepath.Join(otherDir, "ca.key"), filepath.Join(dir, "ca.key"))
			},
			"ca.key: the key does not match the certificate in ",
		},
		"empty certificate": {
			func(dir string) error { return os.Truncate(filepath.Join(dir, "ca.crt"), 0) },
			"ca.crt: missing or empty",
		},
		"a key alone that is none": {
			func(dir string) error { return os.Rename(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")) },
			"ca.key: parsing the key: ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			newAuthority(t, certs.NewDirStore(dir), options(newClock()))
			if err := test.breakIt(dir); err != nil {
				t.Fatal(err)
			}
			err := newAuthority(t, certs.NewDirStore(dir), options(newClock())).Ready()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Error %v, want one with %q", err, test.want)
			}
		})
	}
}

// wantFiles checks that the folder contains exactly these files.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Files (-want +got):\n%s", diff)
	}
}
