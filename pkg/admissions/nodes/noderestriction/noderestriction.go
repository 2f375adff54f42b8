// Package noderestriction keeps a node to what is its own: its Node, its lease, the
// pods that are bound to it, and what these need. See README.md.
package noderestriction

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

const (
	// userPrefix begins the name of a node's user, which goes on with the node's.
	userPrefix = "system:node:"
	// usersGroup is the group of all such users. Whoever is not in it is no node.
	usersGroup = "system:nodes"
)

const (
	insecureCSRs        featuregate.Feature = "AllowInsecureKubeletCertificateSigningRequests"
	csiVolumeHealth     featuregate.Feature = "CSIVolumeHealth"
	podCertificates     featuregate.Feature = "PodCertificateRequest"
	expansionRecovery   featuregate.Feature = "RecoverVolumeExpansionFailure"
	audienceRestriction featuregate.Feature = "ServiceAccountNodeAudienceRestriction"
)

// Plugin is NodeRestriction. In kube-apiserver it is a mutating plugin that changes
// nothing.
//
// Upstream: plugin/pkg/admission/noderestriction.
var Plugin = &admit.Plugin{
	Name:  "NodeRestriction",
	Rules: rules(),
	Features: map[featuregate.Feature]featuregate.FeatureSpec{
		insecureCSRs:        {Default: false, PreRelease: featuregate.Deprecated},
		csiVolumeHealth:     {Default: false, PreRelease: featuregate.Alpha},
		podCertificates:     {Default: true, PreRelease: featuregate.GA},
		expansionRecovery:   {Default: true, PreRelease: featuregate.GA},
		audienceRestriction: {Default: true, PreRelease: featuregate.Beta},
	},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		n := &nodeRestriction{client: d.Client, authorize: d.Authorize, features: d.Features}
		return admit.Handler{Validate: n.validate, Rules: featureRules(d.Features)}, admit.NoConfig(data)
	},
}

type nodeRestriction struct {
	// client looks single objects up. There are no caches: what a node does all
	// the time needs no look, and pods would be a large one.
	client    kubernetes.Interface
	authorize admit.AuthorizeFunc
	features  featuregate.FeatureGate
}

func (n *nodeRestriction) validate(ctx context.Context, r *admit.Request) error {
	node, ok := nodeOf(r.UserInfo)
	switch {
	case !ok:
		return nil
	case node == "":
		return deny(r, "could not determine node from user %q", r.UserInfo.Username)
	}
	switch (schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}) {
	case schema.GroupResource{Resource: "pods"}:
		return n.pods(ctx, r, node)
	case schema.GroupResource{Resource: "nodes"}:
		return checkNode(r, node)
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		return n.claim(r, node)
	case schema.GroupResource{Resource: "serviceaccounts"}:
		return n.token(ctx, r, node)
	case schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}:
		return n.podCertificate(ctx, r, node)
	case schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:
		return n.certificate(r, node)
	case schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}:
		return checkLease(r, node)
	case schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}:
		return n.csiNode(r, node)
	case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}:
		return checkSlice(r, node)
	}
	return nil
}

// nodeOf returns the name of the node that a user is, and whether it is one.
func nodeOf(user authenticationv1.UserInfo) (string, bool) {
	name, ok := strings.CutPrefix(user.Username, userPrefix)
	return name, ok && slices.Contains(user.Groups, usersGroup)
}

func deny(r *admit.Request, format string, args ...any) error {
	return admit.Forbidden(r, fmt.Errorf(format, args...))
}

// unexpected is a denial of what is no object of the resource.
func unexpected(r *admit.Request, obj any) error { return deny(r, "unexpected type %T", obj) }
