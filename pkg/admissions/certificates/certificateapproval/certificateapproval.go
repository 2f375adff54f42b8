// Package certificateapproval lets a certificate signing request be approved, or
// denied, only by those who may approve for its signer. See README.md.
package certificateapproval

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// Plugin is CertificateApproval.
//
// Upstream: plugin/pkg/admission/certificates/approval.
var Plugin = &admit.Plugin{
	Name: "CertificateApproval",
	Rules: []admit.Rule{{
		Group: certificatesv1.GroupName, Resources: []string{"certificatesigningrequests/approval"},
		Operations: []admissionv1.Operation{admissionv1.Update},
		Condition:  condition(),
	}},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		if err := admit.NoConfig(data); err != nil {
			return admit.Handler{}, err
		}
		return admit.Handler{Validate: approval{d.Authorize}.validate}, nil
	},
}

// condition is false for those who may approve.
func condition() string {
	signer := admit.CELValue("oldObject.spec.signerName", "''")
	return signer + " == '' || " + admit.NotAuthorizedForSigner("approve", signer)
}

type approval struct {
	authorize admit.AuthorizeFunc
}

// validate looks at the old object: the new one could name another signer, though
// the API server does not let it through.
func (a approval) validate(ctx context.Context, r *admit.Request) error {
	csr, ok := r.OldObject.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return admit.WrongType(r, "CertificateSigningRequest", r.OldObject)
	}
	return a.authorize.CheckSigner(ctx, r, "approve", "approve requests with", csr.Spec.SignerName)
}
