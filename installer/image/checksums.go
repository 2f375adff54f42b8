package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sums is the name of the file of checksums, which sha256sum -c reads.
const sums = "SHA256SUMS"

func checksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, e := range entries {
		if e.Name() == sums || !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sums), []byte(out.String()), 0o644) //nolint:gosec // everybody may read it
}
