package podsecurity

import (
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/pod-security-admission/api"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
)

// rules returns the rules of the library's own webhooks, and one for pods/resize, which is newer. What is only
// evaluated for warnings and audit annotations fails open.
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

// newSpec returns the CEL expression for all requests for pods except updates of the metadata alone. The library
// compares less of the spec. The expression need not change with the library.
func newSpec() string {
	compared := func(field, operator string) string {
		return admit.CELValue("object."+field, "{}") + operator + admit.CELValue("oldObject."+field, "{}")
	}
	return "request.operation == 'CREATE' || " + podspec.WithoutContainers() + " || " +
		compared("spec", " != ") + " || " + compared("metadata", " == ")
}

// newLabels returns the CEL expression for namespaces of which a label of the plugin is new, changed or removed. For
// all others the plugin has nothing to do, so namespaces without these labels do not depend on Postern.
func newLabels() string {
	labels := admit.CELStrings([]string{
		api.EnforceLevelLabel, api.EnforceVersionLabel, api.AuditLevelLabel,
		api.AuditVersionLabel, api.WarnLevelLabel, api.WarnVersionLabel,
	})
	// No label has a blank as its value.
	value := func(labels string) string { return "(label in " + labels + " ? " + labels + "[label] : ' ')" }
	now, before := admit.CELValue("object.metadata.labels", "{}"), admit.CELValue("oldObject.metadata.labels", "{}")
	return labels + ".exists(label, " + value(now) + " != " + value(before) + ")"
}
