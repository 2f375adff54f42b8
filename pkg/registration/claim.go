package registration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ClaimAnnotation is on every registered configuration. Its value says in JSON who registered the configuration.
const ClaimAnnotation = "postern.dev/registered-by"

// claim says who registers a configuration. Replicas that register the same have the same claim, so that they do not
// overwrite each other.
type claim struct {
	// Deployment and UID are those of the Deployment of the replica. They are empty for a process outside of a
	// Deployment.
	Deployment string    `json:"deployment,omitempty"`
	UID        types.UID `json:"uid,omitempty"`
	// Revision is that of the ReplicaSet of the replica.
	Revision int64 `json:"revision,omitempty"`
	// Digest is a digest of everything that the replica registers.
	Digest string `json:"digest"`
}

// claimOf returns the claim of a configuration, and false if it has none. What is not the claim of a Deployment is that of a
// process.
func claimOf(u *unstructured.Unstructured) (claim, bool) {
	text, claimed := u.GetAnnotations()[ClaimAnnotation]
	c, _ := parseClaim(text)
	return c, claimed
}

func parseClaim(text string) (claim, error) {
	var c claim
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return claim{}, fmt.Errorf("decoding a claim: %w", err)
	}
	return c.normal(), nil
}

// normal returns the claim of a process for what is not the claim of a Deployment.
func (c claim) normal() claim {
	if c.UID == "" || c.Revision < 1 || len(validation.IsDNS1123Subdomain(c.Deployment)) > 0 {
		return claim{Digest: c.Digest}
	}
	return c
}

func (c claim) text() (string, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding a claim: %w", err)
	}
	return string(data), nil
}

// compare orders claims by revision, digest and UID.
func compare(a, b claim) int {
	return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.UID, b.UID))
}

func (c claim) isProcess() bool { return c.UID == "" }

// isPeerOf reports whether the claims are those of one revision, or of processes.
func (c claim) isPeerOf(o claim) bool { return c.UID == o.UID && c.Revision == o.Revision }

func (c claim) String() string {
	if c.isProcess() {
		return "a process outside of a Deployment"
	}
	return fmt.Sprintf("revision %d of Deployment %s", c.Revision, c.Deployment)
}

// isInForce reports whether everything that is registered has the claim own, or nothing is registered.
func isInForce(configs []*unstructured.Unstructured, own claim) bool {
	return !slices.ContainsFunc(configs, func(u *unstructured.Unstructured) bool {
		c, _ := claimOf(u)
		return c != own && !isCanary(u)
	})
}
