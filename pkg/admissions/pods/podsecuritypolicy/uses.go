package podsecuritypolicy

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/internal/names"
	"github.com/postern-dev/postern/pkg/admit"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

// uses looks up which policies a request may use: those that the service account of the pod or the user of the request
// may use in the namespace of the pod. It creates one access review per policy and user.
type uses struct {
	authorize admit.AuthorizeFunc
	groups    []string
	namespace string
	subjects  []authenticationv1.UserInfo
	known     map[string]bool
}

// usesOf checks the service account first, because its permission usually suffices.
func (p *plugin) usesOf(r *admit.Request, pod *corev1.Pod) *uses {
	u := &uses{authorize: p.authorize, groups: p.groups, namespace: r.Namespace, known: map[string]bool{}}
	// Before the API server validates it, the name may be anything, such as too long for an access review.
	if name := pod.Spec.ServiceAccountName; names.CanExist(name) {
		u.subjects = append(u.subjects, authenticationv1.UserInfo{
			Username: serviceaccount.MakeUsername(r.Namespace, name), Groups: serviceaccount.MakeGroupNames(r.Namespace),
		})
	}
	u.subjects = append(u.subjects, r.UserInfo)
	return u
}

func (u *uses) may(ctx context.Context, policy string) (bool, error) {
	if may, ok := u.known[policy]; ok {
		return may, nil
	}
	may, err := u.ask(ctx, policy)
	if err == nil {
		u.known[policy] = may
	}
	return may, err
}

func (u *uses) ask(ctx context.Context, policy string) (bool, error) {
	for _, subject := range u.subjects {
		for _, group := range u.groups {
			got, err := u.authorize(ctx, authorization.ReviewFor(subject, &authorizationv1.ResourceAttributes{
				Verb: "use", Group: group, Version: "*", Resource: policyv1.Resource, Namespace: u.namespace, Name: policy,
			}))
			if err != nil {
				return false, fmt.Errorf("asking whether %s may use PodSecurityPolicy %q: %w", subject.Username, policy, err)
			}
			if got.Allowed {
				return true, nil
			}
		}
	}
	return false, nil
}
