// Package noderestriction restricts a node to its own objects: its Node, its Lease, the pods that are bound
// to it, and the objects that these pods need. See README.md.
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

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
)

const (
	// userPrefix is the prefix of the user name of a node. The name of the node follows.
	userPrefix = "system:node:"
	// usersGroup is the group of all node users. A user outside the group is not a node.
	usersGroup = "system:nodes"
)

const (
	insecureCSRs        featuregate.Feature = "AllowInsecureKubeletCertificateSigningRequests"
	csiVolumeHealth     featuregate.Feature = "CSIVolumeHealth"
	podCertificates     featuregate.Feature = "PodCertificateRequest"
	expansionRecovery   featuregate.Feature = "RecoverVolumeExpansionFailure"
	audienceRestriction featuregate.Feature = "ServiceAccountNodeAudienceRestriction"
)

// Plugin is NodeRestriction. The plugin of kube-apiserver is a mutating plugin that changes nothing, and so
// is the mutating half of this plugin. The rules select the phase in which a request is checked.
//
// Upstream: plugin/pkg/admission/noderestriction.
var Plugin = &admit.Plugin{
	Name:         "NodeRestriction",
	Configurable: true,
	Features: map[featuregate.Feature]featuregate.FeatureSpec{
		insecureCSRs:        {Default: false, PreRelease: featuregate.Deprecated},
		csiVolumeHealth:     {Default: false, PreRelease: featuregate.Alpha},
		podCertificates:     {Default: true, PreRelease: featuregate.GA},
		expansionRecovery:   {Default: true, PreRelease: featuregate.GA},
		audienceRestriction: {Default: true, PreRelease: featuregate.Beta},
	},
	Access: access.Rules{
		access.To("", "pods", "get"), access.To("", "nodes", "get"), access.To("", "persistentvolumeclaims", "get"), access.To("", "persistentvolumes", "get"),
		access.To("", "serviceaccounts", "get"), access.To("storage.k8s.io", "csidrivers", "get"), access.Review(),
	},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := load(data)
		if err != nil {
			return admit.Handler{}, err
		}
		n := &nodeRestriction{client: d.Client, authorize: d.Authorize, features: d.Features, own: d.Namespace}
		// The API server's own plugin is never away, so a failure policy adds nothing to it.
		return admit.Handler{Mutate: n.check, Validate: n.check, Rules: rules(d.Features, c), Warnings: d.Redundant("NodeRestriction", true)}, nil
	},
}

type nodeRestriction struct {
	// client looks up single objects. The plugin has no caches: the frequent requests of a node need no
	// lookup, and a cache of all pods would be large.
	client    kubernetes.Interface
	authorize admit.AuthorizeFunc
	features  featuregate.FeatureGate
	// own is the namespace of Postern.
	own string
}

// check denies the requests that a node may not send. It changes nothing.
func (n *nodeRestriction) check(ctx context.Context, r *admit.Request) error {
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
		return n.certificate(ctx, r, node)
	case schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}:
		return checkLease(r, node)
	case schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}:
		return n.csiNode(r, node)
	case schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}:
		return checkSlice(r, node)
	}
	return nil
}

// nodeOf returns the name of the node that a user represents, and whether the user is a node.
func nodeOf(user authenticationv1.UserInfo) (string, bool) {
	name, ok := strings.CutPrefix(user.Username, userPrefix)
	return name, ok && slices.Contains(user.Groups, usersGroup)
}

func deny(r *admit.Request, format string, args ...any) error {
	return admit.Forbidden(r, fmt.Errorf(format, args...))
}

// unexpected returns a denial for an object of the wrong type.
func unexpected(r *admit.Request, obj any) error { return deny(r, "unexpected type %T", obj) }
