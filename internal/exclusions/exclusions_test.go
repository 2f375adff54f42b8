package exclusions

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestEvaluateOnlyItsOwn checks that the conditions of others are not known, however alike they are. test/parity compares the
// known ones with CEL.
func TestEvaluateOnlyItsOwn(t *testing.T) {
	ar := &admissionv1.AdmissionRequest{Namespace: "kube-system"}
	for expression, want := range map[string]bool{
		Namespaces([]string{"kube-system", "a"}).Expression:                                                     true,
		Namespaces(nil).Expression:                                                                              true,
		AllBut("'kube-system'"):                                                                                 true,
		`!(has(request.namespace) && request.namespace in ["kube-system"])`:                                     false,
		`!(has(request.namespace) && request.namespace in ['a','kube-system'])`:                                 false,
		`!(has(request.namespace) && request.namespace in ['kube-system'] && request.operation in ['DELETE'])`:  false,
		`!(has(request.namespace) && request.namespace in ['kube-system', 'a'])`:                                false,
		`has(request.namespace) && request.namespace == "kube-system"`:                                          false,
		`has(request.namespace) && request.namespace == request.name`:                                           false,
		`has(request.namespace) && request.namespace == 'kube-system' && (request.resource.resource == 'pods')`: false,
		`has(request.namespace) && request.namespace == 'it\\'s'`:                                               false,
		`request.resource.group != 'events.k8s.io' `:                                                            false,
		"true": false,
	} {
		if _, known := Evaluate(admissionregistrationv1.MatchCondition{Name: "exclude-namespaces", Expression: expression}, ar); known != want {
			t.Errorf("Got known %t for %s", known, expression)
		}
	}
}
