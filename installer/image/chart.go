package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
	semantic     = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?)$`)
)

// semver returns a version as Helm wants it. A version that has no number, such as a commit, gets one.
func semver(version string) string {
	if m := semantic.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return "0.0.0-g" + strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, version)
}

// chart writes a Helm chart as helm package does, with the version of the release. helm package writes the time.
func chart(dir string, r release, to string) error {
	return create(to, func(out io.Writer) error {
		zip := gzip.NewWriter(out)
		w := tar.NewWriter(zip)
		err := addFolder(w, dir, r.made, func(name string, data []byte) (string, []byte) {
			if name == "Chart.yaml" {
				data = chartVersion.ReplaceAll(data, []byte("version: "+semver(r.version)))
				data = appVersion.ReplaceAll(data, fmt.Appendf(nil, "appVersion: %q", r.version))
			}
			return path.Join(filepath.Base(dir), name), data
		})
		return errors.Join(err, w.Close(), zip.Close())
	})
}
