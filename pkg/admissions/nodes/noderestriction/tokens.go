package noderestriction

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/pkg/admit"
)

// token allows a node to request tokens of service accounts only for a pod that is
// bound to it, and only for the audiences that the pod mounts tokens for.
func (n *nodeRestriction) token(ctx context.Context, r *admit.Request, node string) error {
	if r.Operation != admissionv1.Create || r.SubResource != "token" {
		return nil
	}
	request, ok := r.Object.(*authenticationv1.TokenRequest)
	if !ok {
		return unexpected(r, r.Object)
	}
	ref := request.Spec.BoundObjectRef
	switch {
	case ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "":
		return deny(r, "node requested token not bound to a pod")
	case ref.UID == "":
		return deny(r, "node requested token with a pod binding without a uid")
	}
	pod, err := n.findPod(ctx, r.Namespace, ref.Name)
	switch {
	case err != nil:
		return err
	case ref.UID != pod.UID:
		return deny(r, "the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	case pod.Spec.NodeName != node:
		return deny(r, "node requested token bound to a pod scheduled on a different node")
	}
	if !n.features.Enabled(audienceRestriction) {
		return nil
	}
	return n.checkAudience(ctx, r, request.Spec.Audiences, pod)
}

// ask asks the API server whether the node is authorized for an audience or signer that its pod does not
// name. The verb exists on no API resource and is used for this check only.
func (n *nodeRestriction) ask(ctx context.Context, r *admit.Request, verb, resource, name string) (admit.Decision, error) {
	return n.authorize(ctx, authorization.ReviewFor(r.UserInfo, &authorizationv1.ResourceAttributes{
		Verb: verb, Group: r.Resource.Group, Version: r.Resource.Version, Resource: resource, Namespace: r.Namespace, Name: name,
	}))
}
