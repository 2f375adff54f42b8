// Package certificatesubjectrestriction denies client certificates for the group system:masters, which no
// authorizer restricts. See README.md.
package certificatesubjectrestriction

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/postern-dev/postern/internal/kinds/certrequest"
	"github.com/postern-dev/postern/internal/kinds/signers"
	"github.com/postern-dev/postern/pkg/admit"
)

// masters is the group that no authorizer restricts.
const masters = "system:masters"

// Plugin is CertificateSubjectRestriction.
//
// Upstream: plugin/pkg/admission/certificates/subjectrestriction.
var Plugin = &admit.Plugin{
	Name: "CertificateSubjectRestriction",
	Rules: []admit.Rule{
		// An object without a signer is not a certificate signing request.
		admit.On("certificatesigningrequests", admissionv1.Create).Of(certificatesv1.GroupName).
			If(admit.CELValue("object.spec.signerName", "''") + " in ['', '" + certificatesv1.KubeAPIServerClientSignerName + "']"),
	},
	New: func(admit.Deps, []byte) (admit.Handler, error) {
		return admit.Handler{Validate: validate}, nil
	},
}

func validate(ctx context.Context, r *admit.Request) error {
	csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return signers.WrongType(r, "CertificateSigningRequest", r.Object)
	}
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	end, err := admit.Hold(ctx, certrequest.Memory(csr.Spec.Request))
	if err != nil {
		return err
	}
	defer end()
	parsed, err := certrequest.Parse(csr.Spec.Request)
	if err != nil {
		return admit.Forbidden(r, fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(parsed.Subject.Organization, masters) {
		return admit.Forbidden(r, fmt.Errorf("use of %s signer with %s group is not allowed", certificatesv1.KubeAPIServerClientSignerName, masters))
	}
	return nil
}
