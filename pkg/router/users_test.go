package router

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
)

func TestUsers(t *testing.T) {
	r := &Router{namespace: "postern-system"}
	for name, want := range map[string]struct {
		home        string
		isComponent bool
	}{
		"alice":                          {"", false},
		"system:kube-scheduler":          {"", true},
		"system:kube-scheduler-2":        {"", false},
		"system:kube-controller-manager": {"", true},
		"system:kube-proxy":              {"", false},
		"system:serviceaccount:kube-system:replicaset-controller": {"kube-system", true},
		"system:serviceaccount:postern-system:postern":            {"postern-system", true},
		"system:serviceaccount:shop:default":                      {"shop", false},
		"system:serviceaccount:kube-system-2:default":             {"kube-system-2", false},
		"system:serviceaccount:":                                  {"", false},
		"system:serviceaccount::":                                 {"", false},
		"system:serviceaccount::default":                          {"", false},
		"system:serviceaccount:kube-system":                       {"", false},
		"system:serviceaccount:kube-system:":                      {"", false},
		"system:serviceaccount:kube-system:a:b":                   {"", false},
		"kube-system:default":                                     {"", false},
	} {
		home, ok := homeOf(name)
		isComponent := r.isComponent(authenticationv1.UserInfo{Username: name})
		if home != want.home || ok != (want.home != "") || isComponent != want.isComponent {
			t.Errorf("%s: got the home %q (%t), and that it is a component: %t", name, home, ok, isComponent)
		}
	}
}
