// Package users knows the names of users that Kubernetes gives to programs.
package users

import "strings"

const serviceAccountPrefix = "system:serviceaccount:"

// HomeOf returns the namespace of a service account, or false for any other user.
func HomeOf(name string) (namespace string, ok bool) {
	account, ok := strings.CutPrefix(name, serviceAccountPrefix)
	namespace, _, _ = strings.Cut(account, ":")
	return namespace, ok && namespace != ""
}

// IsControlPlane reports whether a user is kube-scheduler, kube-controller-manager, or a service account of kube-system, where its
// controllers have theirs.
func IsControlPlane(name string) bool {
	switch name {
	case "system:kube-controller-manager", "system:kube-scheduler":
		return true
	}
	home, ok := HomeOf(name)
	return ok && home == "kube-system"
}
