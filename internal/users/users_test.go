package users

import "testing"

func TestUsers(t *testing.T) {
	for name, want := range map[string]struct {
		home           string
		isControlPlane bool
	}{
		"alice":                          {"", false},
		"system:kube-scheduler":          {"", true},
		"system:kube-controller-manager": {"", true},
		"system:kube-proxy":              {"", false},
		"system:serviceaccount:kube-system:replicaset-controller": {"kube-system", true},
		"system:serviceaccount:shop:default":                      {"shop", false},
		"system:serviceaccount:kube-system-2:default":             {"kube-system-2", false},
		"system:serviceaccount:":                                  {"", false},
		"kube-system:default":                                     {"", false},
	} {
		home, ok := HomeOf(name)
		if ok && home != want.home || ok != (want.home != "") || IsControlPlane(name) != want.isControlPlane {
			t.Errorf("%s: got the home %q (%t), and that it is the control plane: %t", name, home, ok, IsControlPlane(name))
		}
	}
}
