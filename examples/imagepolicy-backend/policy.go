package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
)

const (
	// maxReasons bounds the images in the reason of a denial.
	maxReasons = 5
	// maxReference is longer than any reference to an image, in bytes. Parsing a megabyte takes a second.
	maxReference = 1024
)

// policy decides which images may run.
type policy struct {
	// allowed lists registries and repositories. ghcr.io allows all images of the registry, ghcr.io/acme those whose
	// repository begins with ghcr.io/acme/, and the image ghcr.io/acme.
	allowed []string
	// requireDigest denies images without a digest, because the owner of a registry can move a tag to another image.
	requireDigest bool
	// exempt lists namespaces in which every image may run.
	exempt []string
}

// newPolicy returns an error for an entry that could never match, or that would match more than it says.
func newPolicy(allowed []string, requireDigest bool, exempt []string) (policy, error) {
	p := policy{allowed: allowed, requireDigest: requireDigest, exempt: exempt}
	for _, entry := range allowed {
		name, err := reference.ParseNormalizedNamed(entry + "/x/y")
		if err != nil || name.Name() != entry+"/x/y" {
			return p, fmt.Errorf("%q is not a registry or a repository with its registry, such as docker.io/library", entry)
		}
	}
	return p, nil
}

// review decides about the images of a pod.
func (p policy) review(spec imagepolicyv1alpha1.ImageReviewSpec) imagepolicyv1alpha1.ImageReviewStatus {
	if slices.Contains(p.exempt, spec.Namespace) {
		return imagepolicyv1alpha1.ImageReviewStatus{Allowed: true}
	}
	var reasons []string
	for _, c := range spec.Containers {
		err := p.check(c.Image)
		if err == nil {
			continue
		}
		if len(reasons) == maxReasons {
			reasons = append(reasons, "…")
			break
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", shortened(c.Image), err))
	}
	return imagepolicyv1alpha1.ImageReviewStatus{Allowed: len(reasons) == 0, Reason: strings.Join(reasons, "; ")}
}

// check returns an error if the image may not run. An image must name its registry, because the container runtime of
// the node may take any registry for an image without one.
func (p policy) check(image string) error {
	if len(image) > maxReference {
		return errors.New("it is too long")
	}
	ref, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(image, reference.Domain(ref)+"/") {
		return errors.New("it does not name its registry")
	}
	isAllowed := func(entry string) bool { return ref.Name() == entry || strings.HasPrefix(ref.Name(), entry+"/") }
	if !slices.ContainsFunc(p.allowed, isAllowed) {
		return fmt.Errorf("%s is not on the list of allowed registries", ref.Name())
	}
	if _, ok := ref.(reference.Digested); p.requireDigest && !ok {
		return errors.New("it has no digest")
	}
	return nil
}

// shortened bounds the length of a text that the creator of a pod chooses.
func shortened(s string) string {
	const longest = 300
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}
