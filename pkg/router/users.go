package router

import (
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
)

const serviceAccountPrefix = "system:serviceaccount:"

// homeOf returns the namespace of a service account, or false for any other user.
//
// Upstream: k8s.io/apiserver/pkg/authentication/serviceaccount SplitUsername, which also validates the two names.
func homeOf(user string) (namespace string, ok bool) {
	account, ok := strings.CutPrefix(user, serviceAccountPrefix)
	namespace, name, _ := strings.Cut(account, ":")
	if !ok || namespace == "" || name == "" || strings.Contains(name, ":") {
		return "", false
	}
	return namespace, true
}

// nodes is the group of all nodes.
const nodes = "system:nodes"

func isNode(user authenticationv1.UserInfo) bool { return slices.Contains(user.Groups, nodes) }

// isSystem reports whether the request comes from a node or from a component. The cluster needs these requests to recover.
func (r *Router) isSystem(user authenticationv1.UserInfo) bool {
	return r.isComponent(user) || isNode(user)
}

// isComponent reports whether the request comes from kube-scheduler, kube-controller-manager, or a service account of kube-system,
// where its controllers have theirs, or of Postern itself, which sends some while it decides others. They do not want requests to
// fail. Anybody else may, because the failure policy then decides.
func (r *Router) isComponent(user authenticationv1.UserInfo) bool {
	switch user.Username {
	case "system:kube-controller-manager", "system:kube-scheduler":
		return true
	}
	home, ok := homeOf(user.Username)
	return ok && (home == "kube-system" || home == r.namespace)
}
