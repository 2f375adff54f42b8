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

// DirStore keeps the CA in a folder, for processes outside a cluster. The file ca.crt is the bundle, ca.key the
// key; the certificate that signs is the one in the bundle that the key belongs to. So each of the two files
// can be replaced by itself, and there is a whole CA after every step.
type DirStore struct {
	certFile, keyFile string
}

var _ Store = (*DirStore)(nil)

// NewDirStore returns the store in that folder, which Create makes if it is not there.
func NewDirStore(dir string) *DirStore {
	return &DirStore{certFile: filepath.Join(dir, "ca.crt"), keyFile: filepath.Join(dir, "ca.key")}
}

// Load implements Store. A key without a certificate is no CA yet: somebody is making it, or was when it
// stopped, and Create completes it.
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
	certs := entry{name: s.certFile, data: bundle}
	return parseCA(certs, certs, entry{name: s.keyFile, data: key})
}

// Create implements Store. Two files cannot be made in one step, so the key comes first and decides whose CA it
// is: a process that finds a key signs the certificate with that, and it is the same CA whoever completes it.
func (s *DirStore) Create(ctx context.Context, ca *CA) (*CA, error) {
	if err := os.MkdirAll(filepath.Dir(s.keyFile), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the CA: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(ca.key)
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
	if !belongs(key, ca.cert) {
		if ca, err = selfSign(key, ca.cert.NotBefore, ca.cert.NotAfter); err != nil {
			return nil, err
		}
	}
	if err := place(s.certFile, ca.bundle, 0o644); err != nil {
		return nil, fmt.Errorf("writing the certificate of the CA: %w", err)
	}
	return s.Load(ctx)
}

// place makes a file whole or not at all, and leaves one that is there alone: a link, unlike a rename, never
// replaces anything.
func place(name string, data []byte, mode fs.FileMode) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(name), ".ca-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(temp.Name())) }()
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	if err := os.Link(temp.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
