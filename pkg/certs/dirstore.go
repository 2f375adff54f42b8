package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
)

// DirStore keeps the CA in a folder, for a process outside a cluster. The file ca.crt is the bundle, and ca.key is
// the key of the CA that signs. During a rotation, next.key is the key of the next CA, and leaving.json lists the
// leaving CAs with their times. The certificate of a key is the one in the bundle that belongs to it. Processes that
// start at the same time may share the folder. Only one process may take the steps of a rotation, because files have
// no compare-and-swap.
type DirStore struct {
	certFile, keyFile, nextFile, leavingFile string
}

var _ Store = (*DirStore)(nil)

// NewDirStore returns the store in that folder. Create creates the folder if it does not exist.
func NewDirStore(dir string) *DirStore {
	return &DirStore{
		certFile: filepath.Join(dir, "ca.crt"), keyFile: filepath.Join(dir, "ca.key"),
		nextFile: filepath.Join(dir, nextKeyKey), leavingFile: filepath.Join(dir, leavingKey),
	}
}

// Load implements Store. A key without a certificate is not a CA yet: a process is creating the CA, or stopped while
// doing so. Create completes it.
func (s *DirStore) Load(context.Context) (*CA, error) {
	bundle, err := os.ReadFile(s.certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", s.certFile, ErrNoCA)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the CA: %w", err)
	}
	key, err := os.ReadFile(s.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the CA: %w", err)
	}
	next, err := readIfThere(s.nextFile)
	if err != nil {
		return nil, err
	}
	leaving, err := readIfThere(s.leavingFile)
	if err != nil {
		return nil, err
	}
	certs := entry{name: s.certFile, data: bundle}
	ca, err := parseCA(entries{
		bundle: certs, signers: certs, key: entry{s.keyFile, key},
		nexts: certs, nextKey: entry{s.nextFile, next}, leaving: entry{s.leavingFile, leaving},
	})
	if err != nil {
		return nil, &InvalidError{Err: err}
	}
	return ca, nil
}

// Create implements Store. Two files cannot be created in one step, so Create writes the key first. A process that
// finds a key signs the certificate with that key, so every process completes the same CA.
func (s *DirStore) Create(ctx context.Context, ca *CA) (*CA, error) {
	if err := os.MkdirAll(filepath.Dir(s.keyFile), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the CA: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(ca.signer.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of the CA: %w", err)
	}
	if err := place(s.keyFile, keyPEM, 0o600); err != nil {
		return nil, fmt.Errorf("writing the key of the CA: %w", err)
	}
	keyPEM, err = os.ReadFile(s.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the CA: %w", err)
	}
	key, err := parseKey(entry{name: s.keyFile, data: keyPEM})
	if err != nil {
		return nil, err
	}
	if !belongs(key, ca.signer.cert) {
		signer, err := selfSign(key, ca.signer.cert.NotBefore, ca.signer.cert.NotAfter)
		if err != nil {
			return nil, err
		}
		ca = newCA(signer)
	}
	if err := place(s.certFile, encode(ca.bundle...), 0o644); err != nil {
		return nil, fmt.Errorf("writing the certificate of the CA: %w", err)
	}
	return s.Load(ctx)
}

// Update implements Store. The folder holds a complete CA after every write, even if Update is interrupted: the
// bundle grows before a key is replaced, and shrinks after that.
func (s *DirStore) Update(ctx context.Context, ca *CA) (*CA, error) {
	before, err := s.Load(ctx)
	var invalid *InvalidError
	if err != nil && !errors.As(err, &invalid) {
		return nil, err
	}
	data, err := storedData(ca)
	if err != nil {
		return nil, err
	}
	all := data[bundleKey]
	if before != nil {
		for _, crt := range before.bundle {
			if !ca.publishes(crt) {
				all = append(all, encode(crt)...)
			}
		}
	}
	err = errors.Join(
		overwrite(s.certFile, all, 0o644),
		overwrite(s.leavingFile, data[leavingKey], 0o600),
		overwrite(s.keyFile, data[keyKey], 0o600),
		overwrite(s.nextFile, data[nextKeyKey], 0o600),
		overwrite(s.certFile, data[bundleKey], 0o644))
	if err != nil {
		return nil, fmt.Errorf("writing the CA: %w", err)
	}
	return s.Load(ctx)
}

func readIfThere(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading what is to be replaced: %w", err)
	}
	return data, nil
}

// place creates a complete file or none, and does not change an existing file: a link, unlike a rename, never
// replaces a file.
func place(name string, data []byte, mode fs.FileMode) error {
	return write(name, data, mode, func(temp string) error {
		if err := os.Link(temp, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return os.Remove(temp)
	})
}

// overwrite replaces a file as a whole, or removes the file if there is nothing to write.
func overwrite(name string, data []byte, mode fs.FileMode) error {
	if len(data) == 0 {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return write(name, data, mode, func(temp string) error { return os.Rename(temp, name) })
}

// write writes a temporary file beside name, and calls finish to put it in place.
func write(name string, data []byte, mode fs.FileMode, finish func(temp string) error) error {
	temp, err := os.CreateTemp(filepath.Dir(name), ".ca-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close())
	if err == nil {
		err = finish(temp.Name())
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp.Name()))
	}
	return nil
}
