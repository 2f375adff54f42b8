package podsecuritypolicy

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/typed"
	"github.com/postern-dev/postern/pkg/admit"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// policies reads the policies of the cluster.
type policies struct {
	store  cache.Store
	synced func() bool
	client dynamic.ResourceInterface
}

func newPolicies(d admit.Deps) (*policies, error) {
	informer := d.CustomInformers.ForResource(policyv1.GroupVersionResource()).Informer()
	if err := informer.SetTransform(decoded); err != nil {
		return nil, fmt.Errorf("watching policies: %w", err)
	}
	return &policies{informer.GetStore(), informer.HasSynced, d.Dynamic.Resource(policyv1.GroupVersionResource())}, nil
}

// decoded is the transformation of the informer. It converts policies into their type.
func decoded(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	return decode(u), nil
}

// decode converts a policy into its type. It returns a policy without a spec if the spec contradicts the schema, and no
// pod satisfies such a policy. With an error instead, the cache would keep an older version of the policy.
func decode(u *unstructured.Unstructured) *policyv1.PodSecurityPolicy {
	p := &policyv1.PodSecurityPolicy{}
	if err := typed.From(u, p); err != nil {
		p = &policyv1.PodSecurityPolicy{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}}
	}
	return p
}

var errUnsynced = errors.New("the policies are not known yet")

// cached returns the policies in the cache. All requests share them, so callers must not modify them.
func (p *policies) cached() ([]*policyv1.PodSecurityPolicy, error) {
	if !p.synced() {
		return nil, errUnsynced
	}
	var out []*policyv1.PodSecurityPolicy
	for _, obj := range p.store.List() {
		if item, ok := obj.(*policyv1.PodSecurityPolicy); ok {
			out = append(out, item)
		}
	}
	return out, nil
}

// isCurrent reports whether the API server has the same version of a policy.
func (p *policies) isCurrent(ctx context.Context, policy *policyv1.PodSecurityPolicy) (bool, error) {
	u, err := p.client.Get(ctx, policy.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading PodSecurityPolicy %q: %w", policy.Name, err)
	}
	return u.GetUID() == policy.UID && u.GetResourceVersion() == policy.ResourceVersion, nil
}

// list returns the policies that the API server has now.
func (p *policies) list(ctx context.Context) ([]*policyv1.PodSecurityPolicy, error) {
	list, err := p.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing PodSecurityPolicies: %w", err)
	}
	out := make([]*policyv1.PodSecurityPolicy, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, decode(&list.Items[i]))
	}
	return out, nil
}
