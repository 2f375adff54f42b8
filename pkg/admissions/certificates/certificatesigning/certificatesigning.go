// Package certificatesigning denies issuing a certificate to users who may not sign for the signer of its
// request. See README.md.
package certificatesigning

import (
	"bytes"
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/postern-dev/postern/internal/kinds/signers"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

// Plugin is CertificateSigning.
//
// Upstream: plugin/pkg/admission/certificates/signing.
var Plugin = &admit.Plugin{
	Name:   "CertificateSigning",
	Rules:  []admit.Rule{admit.On("certificatesigningrequests/status", admissionv1.Update).Of(certificatesv1.GroupName).If(condition())},
	Access: access.Rules{access.Review()},
	New: func(d admit.Deps, _ []byte) (admit.Handler, error) {
		return admit.Handler{Validate: signing{d.Authorize}.validate}, nil
	},
}

// condition is false if neither the certificate nor the conditions change, and for users who may sign. An
// object without a signer is not a certificate signing request.
func condition() string {
	signer := admit.CELValue("oldObject.spec.signerName", "''")
	return signer + " == '' || " + admit.CELValue("object.spec.signerName", "''") + " == '' || (" +
		"(" + differ("status.certificate", "''") + " || " + differ("status.conditions", "[]") + ")" +
		" && " + signers.NotAuthorized("sign", signer) + ")"
}

func differ(path, absent string) string {
	return admit.CELValue("object."+path, absent) + " != " + admit.CELValue("oldObject."+path, absent)
}

type signing struct {
	authorize admit.AuthorizeFunc
}

func (s signing) validate(ctx context.Context, r *admit.Request) error {
	old, ok := r.OldObject.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return signers.WrongType(r, "CertificateSigningRequest", r.OldObject)
	}
	csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return signers.WrongType(r, "CertificateSigningRequest", r.Object)
	}
	if bytes.Equal(old.Status.Certificate, csr.Status.Certificate) && apiequality.Semantic.DeepEqual(old.Status.Conditions, csr.Status.Conditions) {
		return nil
	}
	return signers.Check(ctx, s.authorize, r, "sign", "sign requests with", old.Spec.SignerName)
}
