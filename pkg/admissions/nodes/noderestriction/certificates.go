package noderestriction

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/postern-dev/postern/internal/kinds/certrequest"
	"github.com/postern-dev/postern/pkg/admit"
)

// certificate allows a node to request kubelet certificates only in its own name. The signer validates the
// rest of the request.
func (n *nodeRestriction) certificate(ctx context.Context, r *admit.Request, node string) error {
	if n.features.Enabled(insecureCSRs) || r.Operation != admissionv1.Create {
		return nil
	}
	csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpected(r, r.Object)
	}
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName && csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	end, err := admit.Hold(ctx, certrequest.Memory(csr.Spec.Request))
	if err != nil {
		return err
	}
	defer end()
	request, err := certrequest.Parse(csr.Spec.Request)
	switch {
	case err != nil:
		return deny(r, "unable to parse csr: %w", err)
	case request.Subject.CommonName != userPrefix+node:
		return deny(r, "can only create a node CSR with CN=%s%s", userPrefix, node)
	}
	return nil
}
