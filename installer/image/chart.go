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

	// The values of the chart's image.
	repositoryValue = regexp.MustCompile(`(?m)^  repository: .*$`)
	tagValue        = regexp.MustCompile(`(?m)^  tag: .*$`)
	digestValue     = regexp.MustCompile(`(?m)^  digest: .*$`)
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

// chart writes a Helm chart as helm package does, with the version and the image of the release. helm package writes the
// time.
func chart(dir string, r release, to string) error {
	return create(to, func(out io.Writer) error {
		zip := gzip.NewWriter(out)
		w := tar.NewWriter(zip)
		err := addFolder(w, dir, r.made, func(name string, data []byte) (string, []byte) {
			if name == "Chart.yaml" {
				data = chartVersion.ReplaceAll(data, []byte("version: "+semver(r.version)))
				data = appVersion.ReplaceAll(data, fmt.Appendf(nil, "appVersion: %q", r.version))
			}
			if name == "values.yaml" && r.image != "" {
				data = withImage(data, r.image)
			}
			return path.Join(filepath.Base(dir), name), data
		})
		return errors.Join(err, w.Close(), zip.Close())
	})
}

// withImage returns the values of the chart with the parts of an image's name. Without a tag and a digest, a container
// engine pulls the tag latest, and the chart would take its version as the tag.
func withImage(values []byte, image string) []byte {
	name, sum, _ := strings.Cut(image, "@")
	version := ""
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		name, version = name[:i], name[i+1:]
	} else if sum == "" {
		version = "latest"
	}
	values = repositoryValue.ReplaceAllLiteral(values, fmt.Appendf(nil, "  repository: %q", name))
	values = tagValue.ReplaceAllLiteral(values, fmt.Appendf(nil, "  tag: %q", version))
	return digestValue.ReplaceAllLiteral(values, fmt.Appendf(nil, "  digest: %q", sum))
}
