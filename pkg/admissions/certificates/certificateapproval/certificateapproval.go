// Package certificateapproval denies the approval or denial of a certificate signing request to users who may
// not approve for its signer. See README.md.
package certificateapproval

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/postern-dev/postern/internal/kinds/signers"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is CertificateApproval.
//
// Upstream: plugin/pkg/admission/certificates/approval.
var Plugin = &admit.Plugin{
	Name:   "CertificateApproval",
	Rules:  []admit.Rule{admit.On("certificatesigningrequests/approval", admissionv1.Update).Of(certificatesv1.GroupName).If(condition())},
	Access: access.Rules{access.Review()},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		return admit.Handler{Validate: approval{d.Authorize}.validate}, nil
	},
}

// condition is false for users who may approve for the signer.
func condition() string {
	signer := admit.CELValue("oldObject.spec.signerName", "''")
	return signer + " == '' || " + signers.NotAuthorized("approve", signer)
}

type approval struct {
	authorize admit.AuthorizeFunc
}

// validate checks the signer of the old object: the new object could name another signer, although the API
// server drops such a change.
func (a approval) validate(ctx context.Context, r *admit.Request) error {
	csr, ok := r.OldObject.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return signers.WrongType(r, "CertificateSigningRequest", r.OldObject)
	}
	return signers.Check(ctx, a.authorize, r, "approve", "approve requests with", csr.Spec.SignerName)
}
