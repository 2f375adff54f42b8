package fleetquota

import (
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
	"github.com/postern-dev/postern/pkg/admit"
)

// rules returns the rules of the kinds: new objects, changed ones, and other numbers of replicas.
//
// The API server does not call for what cannot change the usage: an update that leaves spec and owners as they are, and an
// object that a controller of Kubernetes makes for an owner that it counts with. The latter are most of the pods of a
// cluster. Custom resources have no conditions, because their configuration may read any field.
func rules(kinds []workload.Kind) []admit.Rule {
	var out []admit.Rule
	for _, kind := range kinds {
		on := func(resource string, operations ...admissionv1.Operation) admit.Rule {
			return admit.Rule{
				Phase: admit.Validating, Group: kind.Group, Versions: []string{kind.Version}, Resources: []string{resource}, Operations: operations,
			}
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

// maker is a controller of kube-controller-manager, and the kind of the owners for which it makes objects. It sets their
// owner itself: what a template says about owners is ignored.
type maker struct{ controller, apiVersion, kind string }

// makers returns the controllers that make objects of a resource, for owners that are always counted with them. A CronJob
// is not always counted with its Jobs.
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
	// controllerUser begins the names of the controllers of kube-controller-manager. Whoever can act as one of them can do
	// everything that it can, so no user of a namespace can.
	controllerUser = "system:serviceaccount:kube-system:"
	// sharedUser is the name of all of them with --use-service-account-credentials=false.
	sharedUser = "system:kube-controller-manager"
)

// madeByOthers returns the CEL for an object that no controller of Kubernetes has made, or "" for all objects of a resource.
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

// ownersChange is the CEL for an update that changes the owners of an object.
func ownersChange() string {
	owners := func(of string) string { return admit.CELValue(of+".metadata.ownerReferences", "[]") }
	return owners("object") + " != " + owners("oldObject")
}

// specChanges is the CEL for an update that changes what an object uses. Everything but the end of a Job and of a pod is in
// its spec, and only the status subresource changes the status.
func specChanges() string {
	spec := func(of string) string { return admit.CELValue(of+".spec", "{}") }
	return spec("object") + " != " + spec("oldObject")
}
