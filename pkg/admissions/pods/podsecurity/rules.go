package podsecurity

import (
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/pod-security-admission/api"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
)

// rules returns the rules of the library's own webhooks, and a rule for pods/resize, which is newer. Rules for requests
// that are evaluated only for warnings and audit annotations fail open.
func rules() []admit.Rule {
	enforced := func(condition string, resources ...string) admit.Rule {
		return admit.Rule{Resources: resources, Operations: operations()}.If(condition)
	}
	advised := func(group string, resources ...string) admit.Rule {
		return admit.Rule{Group: group, Resources: resources, Operations: operations()}.OrIgnore()
	}
	return []admit.Rule{
		enforced(newLabels(), "namespaces"),
		enforced(newSpec(), "pods", "pods/ephemeralcontainers", "pods/resize"),
		advised("", "podtemplates", "replicationcontrollers"),
		advised("apps", "daemonsets", "deployments", "replicasets", "statefulsets"),
		advised("batch", "cronjobs", "jobs"),
	}
}

func operations() []admissionv1.Operation {
	return []admissionv1.Operation{admissionv1.Create, admissionv1.Update}
}

// newSpec returns the CEL expression that is true for all requests for pods except updates that change only metadata.
// The library compares fewer fields of the spec, so the expression need not change with the library.
func newSpec() string {
	compared := func(field, operator string) string {
		return admit.CELValue("object."+field, "{}") + operator + admit.CELValue("oldObject."+field, "{}")
	}
	return "request.operation == 'CREATE' || " + podspec.WithoutContainers() + " || " +
		compared("spec", " != ") + " || " + compared("metadata", " == ")
}

// newLabels returns the CEL expression that is true for namespaces whose labels of the plugin are set, changed or
// removed. The plugin ignores all other namespaces, so namespaces without these labels do not depend on Postern.
func newLabels() string {
	labels := admit.CELStrings([]string{
		api.EnforceLevelLabel, api.EnforceVersionLabel, api.AuditLevelLabel,
		api.AuditVersionLabel, api.WarnLevelLabel, api.WarnVersionLabel,
	})
	// The value of a label cannot be a blank.
	value := func(labels string) string { return "(label in " + labels + " ? " + labels + "[label] : ' ')" }
	now, before := admit.CELValue("object.metadata.labels", "{}"), admit.CELValue("oldObject.metadata.labels", "{}")
	return labels + ".exists(label, " + value(now) + " != " + value(before) + ")"
}
