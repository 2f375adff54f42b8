package noderestriction

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// podCertificate allows a node to request a certificate only for a pod that is bound to the node, as the
// service account of that pod, from a signer that the pod names in a projected volume.
func (n *nodeRestriction) podCertificate(ctx context.Context, r *admit.Request, node string) error {
	switch {
	case !n.features.Enabled(podCertificates):
		return deny(r, "PodCertificateRequest feature gate is disabled")
	case r.Operation != admissionv1.Create:
		return deny(r, "unexpected operation %v", r.Operation)
	case r.SubResource != "":
		return deny(r, "unexpected subresource %v", r.SubResource)
	case r.Object == nil:
		return unexpected(r, r.Object)
	}
	request := struct {
		Spec certificatesv1.PodCertificateRequestSpec `json:"spec"`
	}{}
	if err := readAs(r.AdmissionRequest.Object, &request); err != nil {
		return err
	}
	spec := &request.Spec
	if err := n.checkNodeOf(ctx, r, spec, node); err != nil {
		return err
	}
	pod, err := n.certifiedPod(ctx, r, spec)
	if err != nil {
		return err
	}
	if err := n.checkAccountOf(ctx, r, spec, pod); err != nil {
		return err
	}
	return n.checkSigner(ctx, r, spec, pod)
}

func (n *nodeRestriction) checkNodeOf(ctx context.Context, r *admit.Request, spec *certificatesv1.PodCertificateRequestSpec, node string) error {
	if string(spec.NodeName) != node {
		return deny(r, "PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", spec.NodeName, node)
	}
	current, err := n.findNode(ctx, node)
	if err != nil {
		return missing(err, "while retrieving node %q named in the PodCertificateRequest", spec.NodeName)
	}
	if current.UID != spec.NodeUID {
		return admit.ForbiddenAs(r, fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", podOf(r, spec), spec.NodeUID, current.UID))
	}
	return nil
}

// certifiedPod returns the pod of the request.
func (n *nodeRestriction) certifiedPod(ctx context.Context, r *admit.Request, spec *certificatesv1.PodCertificateRequestSpec) (*corev1.Pod, error) {
	pod, err := n.findPod(ctx, r.Namespace, spec.PodName)
	if err != nil {
		return nil, missing(err, "while retrieving pod %q named in the PodCertificateRequest", podOf(r, spec))
	}
	switch _, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; {
	case spec.PodUID != pod.UID:
		return nil, admit.ForbiddenAs(r, fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", podOf(r, spec), spec.PodUID, pod.UID))
	case pod.Spec.NodeName != string(spec.NodeName):
		return nil, deny(r, "pod %q is not running on node %q named in the PodCertificateRequest", podOf(r, spec), spec.NodeName)
	case isMirror:
		return nil, deny(r, "pod %q is a mirror pod", podOf(r, spec))
	}
	return pod, nil
}

func (n *nodeRestriction) checkAccountOf(ctx context.Context, r *admit.Request, spec *certificatesv1.PodCertificateRequestSpec, pod *corev1.Pod) error {
	if spec.ServiceAccountName != pod.Spec.ServiceAccountName {
		return deny(r, "PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", podOf(r, spec), spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	account, err := find(ctx, n.client.CoreV1().ServiceAccounts(r.Namespace), corev1.Resource("serviceaccount"), spec.ServiceAccountName)
	if err != nil {
		return missing(err, "while retrieving service account %q named in the PodCertificateRequest", r.Namespace+"/"+spec.ServiceAccountName)
	}
	if spec.ServiceAccountUID != account.UID {
		return admit.ForbiddenAs(r, fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)", podOf(r, spec), spec.ServiceAccountUID, account.UID))
	}
	return nil
}

// checkSigner denies a signer that the pod does not name, unless the node is authorized to use the signer.
func (n *nodeRestriction) checkSigner(ctx context.Context, r *admit.Request, spec *certificatesv1.PodCertificateRequestSpec, pod *corev1.Pod) error {
	if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return mountsCertificate(&v, spec.SignerName) }) {
		return nil
	}
	// A role cannot name a resource that contains a slash.
	resource := strings.ReplaceAll(spec.SignerName, "/", ":")
	decision, err := n.ask(ctx, r, "request-serviceaccounts-podcertificate-signer", resource, spec.ServiceAccountName)
	switch {
	case err != nil:
		return fmt.Errorf("authorizing %s to request podcertificaterequests for signer %q: %w", r.UserInfo.Username, spec.SignerName, err)
	case decision.Allowed:
		return nil
	case decision.EvaluationError != "":
		return deny(r, "error authorizing %s to request podcertificaterequests for signer %q: %s", r.UserInfo.Username, spec.SignerName, decision.EvaluationError)
	default:
		return deny(r, "pod %q does not mount a podCertificate projected volume for signer %q", podOf(r, spec), spec.SignerName)
	}
}

func mountsCertificate(v *corev1.Volume, signer string) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
		return s.PodCertificate != nil && s.PodCertificate.SignerName == signer
	})
}

// podOf returns the description of the pod of a request in messages.
func podOf(r *admit.Request, spec *certificatesv1.PodCertificateRequestSpec) string {
	return r.Namespace + "/" + spec.PodName
}

// missing wraps a NotFound error with the name of the object that was looked up. Upstream: the error is a
// plain error, so that no client treats it as final. A kubelet retries after any error.
func missing(err error, format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, err)...)
}
