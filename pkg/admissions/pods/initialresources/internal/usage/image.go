package usage

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"
)

// maxReference is the largest size of a reference in bytes. A valid one has at most 255 bytes of name, 128 of tag, and
// the digest. Users choose images, and parsing a megabyte takes a second.
const maxReference = 1024

// Image is a reference to an image, split into its parts. Two references to the same image are equal:
// nginx, docker.io/library/nginx and nginx:latest.
type Image struct {
	// name is the full name without a version, such as docker.io/library/nginx.
	name string
	// version is the tag with its colon, or the digest with its at sign. It is "" for all versions.
	version string
}

// ParseImage parses the image of a container. An image without a version has the tag latest. The digest takes
// precedence over a tag, as in container runtimes.
func ParseImage(text string) (Image, error) {
	i, err := parseAny(text)
	if err == nil && i.version == "" {
		i.version = ":latest"
	}
	return i, err
}

// parseAny is like ParseImage, but an image without a version matches all versions.
func parseAny(text string) (Image, error) {
	if len(text) > maxReference {
		return Image{}, fmt.Errorf("an image of %d bytes is too long", len(text))
	}
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return Image{}, fmt.Errorf("image %q: %w", text, err)
	}
	i := Image{name: named.Name()}
	switch ref := named.(type) {
	case reference.Digested:
		i.version = "@" + ref.Digest().String()
	case reference.Tagged:
		i.version = ":" + ref.Tag()
	}
	return i, nil
}

func (i Image) anyVersion() Image { return Image{name: i.name} }

// pattern returns the regular expression for the values of a label that refer to the image. Container runtimes write
// images of Docker Hub with the full name or as the user did, and digests with or without a tag.
func (i Image) pattern() string {
	names := []string{i.name}
	if named, err := reference.WithName(i.name); err == nil {
		names = append(names, reference.FamiliarName(named))
	}
	version := regexp.QuoteMeta(i.version)
	switch {
	case i.version == "":
		version = "([:@].+)?"
	case strings.HasPrefix(i.version, "@"):
		version = "(:[^@]+)?" + version
	}
	var patterns []string
	for _, name := range slices.Compact(names) {
		patterns = append(patterns, regexp.QuoteMeta(name)+version)
	}
	return strings.Join(patterns, "|")
}
