package router

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// GenerationAnnotation records which Postern wrote a configuration last: the start
// time of that Postern, and a digest of everything that it registers. During a
// rollout, two versions of Postern with different services run at the same time.
// Without the annotation, each would revert the changes of the other.
const GenerationAnnotation = "postern.dev/generation"

// uninstalledDigest is the digest in the generation of a configuration that is
// being uninstalled. No running Postern restores such a configuration.
const uninstalledDigest = "uninstalled"

// generationTime is RFC 3339 with a fixed number of digits. Times in UTC then sort
// as strings.
const generationTime = "2006-01-02T15:04:05.000Z07:00"

type generation struct {
	started string
	digest  string
}

func newGeneration(d Deployment, services []AdmissionService, now time.Time) (generation, error) {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for _, s := range services {
		if s.MutatingConfig != nil {
			if err := enc.Encode(d.mutating(s, endpoint{})); err != nil {
				return generation{}, fmt.Errorf("service %s: encoding its mutating configuration: %w", s.Path, err)
			}
		}
		if s.ValidatingConfig != nil {
			if err := enc.Encode(d.validating(s, endpoint{})); err != nil {
				return generation{}, fmt.Errorf("service %s: encoding its validating configuration: %w", s.Path, err)
			}
		}
	}
	return generation{started: now.UTC().Format(generationTime), digest: hex.EncodeToString(sum.Sum(nil)[:8])}, nil
}

func generationOf(u *unstructured.Unstructured) generation {
	started, digest, ok := strings.Cut(u.GetAnnotations()[GenerationAnnotation], "/")
	if !ok {
		return generation{}
	}
	return generation{started: started, digest: digest}
}

func (g generation) String() string { return g.started + "/" + g.digest }

func (g generation) uninstalled() bool { return g.digest == uninstalledDigest }

// newerThan reports whether g registers other services and started later than o. If
// both started at the same moment, the digests decide.
func (g generation) newerThan(o generation) bool {
	return g.digest != o.digest && (g.started > o.started || g.started == o.started && g.digest > o.digest)
}
