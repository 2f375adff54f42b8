package defaults

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiRules has the rules of the kinds that configure the API server.
func apiRules(r rules) {
	on(r, func(b *rbacv1.RoleBinding) { fill(&b.RoleRef.APIGroup, rbacv1.GroupName) })
	on(r, func(b *rbacv1.ClusterRoleBinding) { fill(&b.RoleRef.APIGroup, rbacv1.GroupName) })
	on(r, func(s *rbacv1.Subject) {
		if s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			fill(&s.APIGroup, rbacv1.GroupName)
		}
	})
	on(r, func(s *authenticationv1.TokenRequestSpec) { set(&s.ExpirationSeconds, 60*60) })
	on(r, func(s *certificatesv1.PodCertificateRequestSpec) { set(&s.MaxExpirationSeconds, 24*60*60) })

	on(r, func(s *flowcontrolv1.FlowSchemaSpec) { fill(&s.MatchingPrecedence, 1000) })
	on(r, func(c *flowcontrolv1.ExemptPriorityLevelConfiguration) {
		set(&c.NominalConcurrencyShares, 0)
		set(&c.LendablePercent, 0)
	})
	on(r, func(c *flowcontrolv1.LimitedPriorityLevelConfiguration) {
		set(&c.NominalConcurrencyShares, 30)
		set(&c.LendablePercent, 0)
	})
	on(r, func(c *flowcontrolv1.QueuingConfiguration) {
		fill(&c.HandSize, 8)
		fill(&c.Queues, 64)
		fill(&c.QueueLengthLimit, 50)
	})

	on(r, func(w *admissionregistrationv1.ValidatingWebhook) {
		set(&w.FailurePolicy, admissionregistrationv1.Fail)
		set(&w.TimeoutSeconds, 10)
		setMatch(&w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector)
	})
	on(r, func(w *admissionregistrationv1.MutatingWebhook) {
		set(&w.FailurePolicy, admissionregistrationv1.Fail)
		set(&w.TimeoutSeconds, 10)
		set(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		setMatch(&w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector)
	})
	on(r, func(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
		set(&s.FailurePolicy, admissionregistrationv1.Fail)
	})
	on(r, func(s *admissionregistrationv1.MutatingAdmissionPolicySpec) {
		set(&s.FailurePolicy, admissionregistrationv1.Fail)
	})
	on(r, func(m *admissionregistrationv1.MatchResources) {
		setMatch(&m.MatchPolicy, &m.NamespaceSelector, &m.ObjectSelector)
	})
	on(r, func(rule *admissionregistrationv1.Rule) { set(&rule.Scope, admissionregistrationv1.AllScopes) })
	on(r, func(s *admissionregistrationv1.ServiceReference) { set(&s.Port, 443) })
}

func setMatch(policy **admissionregistrationv1.MatchPolicyType, selectors ...**metav1.LabelSelector) {
	set(policy, admissionregistrationv1.Equivalent)
	for _, selector := range selectors {
		set(selector, metav1.LabelSelector{})
	}
}
