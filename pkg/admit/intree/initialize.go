package intree

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admit"
)

// initialize injects the dependencies that the plugin wants, by the interfaces of
// k8s.io/apiserver/pkg/admission/initializer, in the same order. It does not support
// all of them, such as the quota configuration. A plugin that needs such a dependency
// fails when its initialization is validated.
func initialize(plugin admission.Interface, d admit.Deps) {
	if p, ok := plugin.(interface{ SetDrainedNotification(<-chan struct{}) }); ok {
		// The channel is never closed. The process ends when the last request is drained.
		p.SetDrainedNotification(make(chan struct{}))
	}
	if p, ok := plugin.(interface {
		InspectFeatureGates(featuregate.FeatureGate)
	}); ok {
		p.InspectFeatureGates(d.Features)
	}
	if p, ok := plugin.(interface {
		SetExternalKubeClientSet(kubernetes.Interface)
	}); ok {
		p.SetExternalKubeClientSet(d.Client)
	}
	if p, ok := plugin.(interface{ SetDynamicClient(dynamic.Interface) }); ok {
		p.SetDynamicClient(d.Dynamic)
	}
	if p, ok := plugin.(interface {
		SetExternalKubeInformerFactory(informers.SharedInformerFactory)
	}); ok {
		p.SetExternalKubeInformerFactory(d.Informers)
	}
	if p, ok := plugin.(interface {
		SetUnconditionalAuthorizer(authorizer.UnconditionalAuthorizer)
	}); ok {
		p.SetUnconditionalAuthorizer(newAuthorizer(d.Authorize))
	}
	if p, ok := plugin.(interface{ SetAuthorizer(authorizer.Authorizer) }); ok {
		p.SetAuthorizer(newAuthorizer(d.Authorize))
	}
	if p, ok := plugin.(interface{ SetRESTMapper(meta.RESTMapper) }); ok {
		p.SetRESTMapper(d.RESTMapper)
	}
}

// newAuthorizer returns an authorizer that creates access reviews. A request that is
// not allowed gets DecisionNoOpinion, as from a chain of authorizers without an
// opinion.
func newAuthorizer(ask admit.AuthorizeFunc) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		d, err := ask(ctx, reviewOf(a))
		switch {
		case err != nil:
			return authorizer.DecisionNoOpinion, "", err
		case d.Allowed:
			return authorizer.DecisionAllow, d.Reason, nil
		default:
			return authorizer.DecisionNoOpinion, d.Reason, nil
		}
	})
}

// reviewOf drops field and label selectors. Selectors only narrow a request, so a
// review without them never allows more.
func reviewOf(a authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var spec authorizationv1.SubjectAccessReviewSpec
	if u := a.GetUser(); u != nil {
		spec.User, spec.UID, spec.Groups = u.GetName(), u.GetUID(), u.GetGroups()
		for k, v := range u.GetExtra() {
			if spec.Extra == nil {
				spec.Extra = map[string]authorizationv1.ExtraValue{}
			}
			spec.Extra[k] = v
		}
	}
	if !a.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.GetPath(), Verb: a.GetVerb()}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
	}
	return spec
}
