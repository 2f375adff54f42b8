package registration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/postern-dev/postern/pkg/router"
)

// Digest returns a digest of everything that a Postern with these services registers, without the CA bundle and the
// segment of the paths.
func (d Deployment) Digest(services []router.AdmissionService) (string, error) {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for _, s := range services {
		if s.MutatingConfig != nil {
			if err := enc.Encode(d.mutating(s, endpoint{})); err != nil {
				return "", fmt.Errorf("service %s: encoding its mutating configuration: %w", s.Path, err)
			}
		}
		if s.ValidatingConfig != nil {
			if err := enc.Encode(d.validating(s, endpoint{})); err != nil {
				return "", fmt.Errorf("service %s: encoding its validating configuration: %w", s.Path, err)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}
