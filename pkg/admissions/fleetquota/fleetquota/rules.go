package fleetquota

import (
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/pkg/admit"
)

// rules returns the rules for new objects of the kinds, for changed ones, and for changed numbers of replicas.
//
// The conditions exclude requests that cannot change the usage: an update that changes neither the spec nor the owners,
// and an object that a controller of Kubernetes creates for an owner whose usage includes it, such as most pods of a
// cluster. Custom resources have no conditions, because their configuration may read any field.
func rules(kinds []workload.Kind) []admit.Rule {
	var out []admit.Rule
	for _, kind := range kinds {
		on := func(resource string, operations ...admissionv1.Operation) admit.Rule {
			return admit.On(resource, operations...).Of(kind.Group, kind.Version).In(admit.Validating)
		}
		created, updated := on(kind.Resource, admissionv1.Create), on(kind.Resource, admissionv1.Update)
		switch others := madeByOthers(kind.Resource); {
		case kind.Custom != nil:
		case others != "":
			created.Condition = others
			updated.Condition = ownersChange() + " || " + specChanges() + " && (" + others + ")"
		default:
			updated.Condition = ownersChange() + " || " + specChanges()
		}
		out = append(out, created, updated)
		switch {
		case kind.Resource == "pods":
			out = append(out, on("pods/resize", admissionv1.Update))
		case kind.Scale != "":
			out = append(out, on(kind.Resource+"/scale", admissionv1.Update))
		}
	}
	return out
}

// maker is a controller of kube-controller-manager and the kind of the owners for which it creates objects. The
// controller itself sets the owner, and ignores the owners in a template.
type maker struct{ controller, apiVersion, kind string }

// makers returns the controllers that create objects of a resource for owners whose usage always includes these
// objects. The usage of a CronJob does not always include that of its Jobs.
func makers(resource string) []maker {
	switch resource {
	case "pods":
		return []maker{
			{"replicaset-controller", "apps/v1", "ReplicaSet"},
			{"statefulset-controller", "apps/v1", "StatefulSet"},
			{"daemon-set-controller", "apps/v1", "DaemonSet"},
			{"job-controller", "batch/v1", "Job"},
		}
	case "replicasets":
		return []maker{{"deployment-controller", "apps/v1", "Deployment"}}
	}
	return nil
}

const (
	// controllerUser is the prefix of the user names of kube-controller-manager's controllers. A user who can act as
	// one of them has all its permissions, so users of a namespace cannot.
	controllerUser = "system:serviceaccount:kube-system:"
	// sharedUser is the user name of all controllers with --use-service-account-credentials=false.
	sharedUser = "system:kube-controller-manager"
)

// madeByOthers returns the CEL expression that is true for objects that were not created by a controller of Kubernetes.
// It is "" if all objects of the resource count.
func madeByOthers(resource string) string {
	var users, owners []string
	for _, m := range makers(resource) {
		users = append(users, controllerUser+m.controller)
		owners = append(owners, "o.apiVersion == '"+m.apiVersion+"' && o.kind == '"+m.kind+"' && request.userInfo.username in "+
			admit.CELStrings([]string{controllerUser + m.controller, sharedUser}))
	}
	if len(owners) == 0 {
		return ""
	}
	is := "has(o.controller) && o.controller && (" + strings.Join(owners, " || ") + ")"
	return "!(has(request.userInfo.username) && request.userInfo.username in " + admit.CELStrings(append(users, sharedUser)) + ") || " +
		admit.CELNone(admit.CELValue("object.metadata.ownerReferences", "[]"), "o", is)
}

// ownersChange returns the CEL expression that is true for updates that change the owners of an object.
func ownersChange() string {
	owners := func(of string) string { return admit.CELValue(of+".metadata.ownerReferences", "[]") }
	return owners("object") + " != " + owners("oldObject")
}

// specChanges returns the CEL expression that is true for updates that change the usage of an object. The usage depends
// on the spec, and on the status only for the end of a Job or a pod, which only the subresource status changes.
func specChanges() string {
	spec := func(of string) string { return admit.CELValue(of+".spec", "{}") }
	return spec("object") + " != " + spec("oldObject")
}
