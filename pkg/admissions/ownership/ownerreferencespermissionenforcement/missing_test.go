package ownerreferencespermissionenforcement

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

func TestMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		user string
		a    authorizationv1.ResourceAttributes
		want string
	}{
		"a namespaced owner": {
			"carol",
			authorizationv1.ResourceAttributes{Verb: "update", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "finalizers", Namespace: "shop", Name: "web"},
			`User "carol" cannot update resource "deployments/finalizers" in API group "apps" in the namespace "shop" (name "web")`,
		},
		"a cluster-scoped owner in the core group": {
			"carol",
			authorizationv1.ResourceAttributes{Verb: "update", Version: "v1", Resource: "nodes", Subresource: "finalizers", Name: "n1"},
			`User "carol" cannot update resource "nodes/finalizers" in API group "" at the cluster scope (name "n1")`,
		},
		"an object": {
			"carol",
			authorizationv1.ResourceAttributes{Verb: "delete", Version: "v1", Resource: "pods", Namespace: "shop", Name: "web"},
			`User "carol" cannot delete resource "pods" in API group "" in the namespace "shop" (name "web")`,
		},
		"a subresource of an object": {
			"carol",
			authorizationv1.ResourceAttributes{Verb: "delete", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale", Namespace: "shop", Name: "web"},
			`User "carol" cannot delete resource "deployments/scale" in API group "apps" in the namespace "shop" (name "web")`,
		},
		"all names": {
			"carol",
			authorizationv1.ResourceAttributes{Verb: "update", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "finalizers", Namespace: "shop"},
			`User "carol" cannot update resource "deployments/finalizers" in API group "apps" in the namespace "shop"`,
		},
		"a long user": {
			strings.Repeat("u", 1000),
			authorizationv1.ResourceAttributes{Verb: "update", Version: "v1", Resource: "pods", Subresource: "finalizers", Namespace: "shop", Name: "web"},
			`User "` + strings.Repeat("u", 253) + ` ..." cannot update resource "pods/finalizers" in API group "" in the namespace "shop" (name "web")`,
		},
		"a user with other characters": {
			"a\n\"b\"",
			authorizationv1.ResourceAttributes{Verb: "delete", Version: "v1", Resource: "pods", Namespace: "shop", Name: "web"},
			`User "a\n\"b\"" cannot delete resource "pods" in API group "" in the namespace "shop" (name "web")`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := missing(tc.user, tc.a); got != tc.want {
				t.Errorf("Got %s, want %s", got, tc.want)
			}
		})
	}
}
