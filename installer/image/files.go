package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// create creates a file with what write writes.
func create(path string, write func(io.Writer) error) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(out), out.Close())
}

// addFolder adds the files of a folder in the order of their names. change returns the name and the content in the
// archive.
func addFolder(w *tar.Writer, dir string, made time.Time, change func(name string, data []byte) (string, []byte)) error {
	files := os.DirFS(dir)
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		name, data = change(name, data)
		return add(w, name, 0o644, made, data)
	})
}

// add adds a file that belongs to root.
func add(w *tar.Writer, name string, mode int64, made time.Time, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data)), ModTime: made, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// unpack extracts the files of an archive.
func unpack(from, dir string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it is only read
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // it is only a folder
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && h.Typeflag == tar.TypeReg {
			err = extract(r, root, h.Name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
}

func extract(r io.Reader, root *os.Root, name string) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return err
	}
	return root.WriteFile(name, data, 0o600)
}
