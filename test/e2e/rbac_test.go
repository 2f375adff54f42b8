package e2e_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/test/e2e"
)

const serviceAccount = "system:serviceaccount:postern-system:postern"

// TestServiceAccountSuffices makes a Postern send each kind of request that Postern ever sends. Every test fails if the
// API server denies Postern a permission. This test also checks that Postern has sent the requests, and as which user.
func TestServiceAccountSuffices(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	o := alwaysPull()
	o.Service = true
	p := startServing(t, c, o)
	all := configsOf(t, c)
	before := all.get()
	all.delete()
	eventuallySame(t, all, before)
	p.Stop(t)
	c.StartPostern(t, e2e.Options{})
	e2e.Eventually(t, repairBound, "the configurations are removed", all.gone)
	asked := map[string]bool{}
	for _, e := range c.Audit(t, e2e.AuditEvent.ByPostern) {
		if e.User.Username != serviceAccount {
			t.Errorf("Postern is the user %s, want %s", e.User.Username, serviceAccount)
		}
		asked[e.Verb+" "+e.ObjectRef.Resource] = true
	}
	for _, want := range []string{
		"list mutatingwebhookconfigurations", "watch mutatingwebhookconfigurations", "patch mutatingwebhookconfigurations", "delete mutatingwebhookconfigurations",
		"list validatingwebhookconfigurations", "watch validatingwebhookconfigurations", "patch validatingwebhookconfigurations", "delete validatingwebhookconfigurations",
		"get secrets", "create secrets", "get services", "get namespaces", "watch namespaces",
		"list leases", "watch leases", "create leases", "patch leases", "delete leases",
	} {
		if !asked[want] {
			t.Errorf("The audit log does not know that Postern did %q; it knows %v", want, asked)
		}
	}
}

func TestServiceAccountMayDoNoMore(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	for _, test := range []struct {
		verb, group, resource, namespace, name string
		want                                   bool
	}{
		// The allowed request shows that the access review itself is correct.
		{"get", "", "secrets", e2e.PosternNamespace, e2e.SecretName, true},
		{"get", "", "secrets", e2e.PosternNamespace, "another", false},
		{"list", "", "secrets", e2e.PosternNamespace, "", false},
		{"get", "", "secrets", "kube-system", e2e.SecretName, false},
		{"create", "", "pods", e2e.PosternNamespace, "", false},
		{"delete", "", "namespaces", "", e2e.PosternNamespace, false},
		{"create", "rbac.authorization.k8s.io", "clusterrolebindings", "", "", false},
		{"bind", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin", false},
		{"impersonate", "", "users", "", "admin", false},
	} {
		review, err := c.Admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: serviceAccount, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:postern-system", "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: test.verb, Group: test.group, Resource: test.resource, Namespace: test.namespace, Name: test.name,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("Asking for access: %v", err)
		}
		if got := review.Status.Allowed; got != test.want {
			t.Errorf("May it %s %s %q in namespace %q? %t, want %t", test.verb, test.resource, test.name, test.namespace, got, test.want)
		}
	}
}
