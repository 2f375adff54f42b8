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

// GenerationAnnotation says on a configuration which Postern wrote it last: when
// that started, and a digest of all that it registers. During a rollout two
// Posterns with different services run beside each other; without it, each would
// restore what the other one changed.
const GenerationAnnotation = "postern.dev/generation"

// uninstalledDigest stands in the generation of a configuration that is being
// uninstalled: every Postern that runs leaves it deleted.
const uninstalledDigest = "uninstalled"

// generationTime is RFC 3339. With a fixed number of digits, and in UTC, order in
// time is order of strings.
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
			if err := enc.Encode(d.mutating(s, nil)); err != nil {
				return generation{}, fmt.Errorf("service %s: encoding its mutating configuration: %w", s.Path, err)
			}
		}
		if s.ValidatingConfig != nil {
			if err := enc.Encode(d.validating(s, nil)); err != nil {
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

// newerThan reports whether g registers something else and started later than o.
// Of two that started at the same moment one has to give way as well.
func (g generation) newerThan(o generation) bool {
	return g.digest != o.digest && (g.started > o.started || g.started == o.started && g.digest > o.digest)
}
