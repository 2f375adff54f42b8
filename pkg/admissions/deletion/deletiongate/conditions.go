package deletiongate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/postern-dev/postern/pkg/admit"
	deletionv1alpha1 "github.com/postern-dev/postern/pkg/apis/deletion/v1alpha1"
)

const (
	// nodeUser is the prefix of the user name of a kubelet.
	nodeUser = "system:node:"
	// podCollector and namespaceController delete only pods whose node or namespace is gone, or that have ended.
	podCollector        = "system:serviceaccount:kube-system:pod-garbage-collector"
	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
)

// selects reports whether a pod has the gate.
func (g *gate) selects(pod *corev1.Pod) bool {
	if len(g.Namespaces) > 0 && !slices.Contains(g.Namespaces, pod.Namespace) {
		return false
	}
	for key, value := range g.Annotations {
		if got, ok := pod.Annotations[key]; !ok || got != value {
			return false
		}
	}
	return g.selector.Matches(labels.Set(pod.Labels))
}

// selection returns the CEL expression for the pods, at object or oldObject, that have the gate.
func (g *gate) selection(at string) string {
	terms := []string{"true"}
	if len(g.Namespaces) > 0 {
		terms = append(terms, "has(request.namespace) && request.namespace in "+admit.CELStrings(g.Namespaces))
	}
	if s := g.Selector; s != nil {
		terms = append(terms, bind(metadataField(at, "labels"), "l", labelTerms(s)))
	}
	if len(g.Annotations) > 0 {
		terms = append(terms, bind(metadataField(at, "annotations"), "a", equalTerms("a", g.Annotations)))
	}
	return "(" + strings.Join(terms, " && ") + ")"
}

// bind returns a CEL expression that evaluates a value once and names it.
func bind(value, name string, terms []string) string {
	return "[" + value + "].exists(" + name + ", " + strings.Join(append([]string{"true"}, terms...), " && ") + ")"
}

func metadataField(at, field string) string { return admit.CELValue(at+".metadata."+field, "{}") }

func equalTerms(name string, values map[string]string) []string {
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		terms = append(terms, fmt.Sprintf("%[2]s in %[1]s && %[1]s[%[2]s] == %[3]s", name, admit.CELString(key), admit.CELString(values[key])))
	}
	return terms
}

func labelTerms(s *metav1.LabelSelector) []string {
	terms := equalTerms("l", s.MatchLabels)
	for _, e := range s.MatchExpressions {
		key := admit.CELString(e.Key)
		has := key + " in l"
		in := has + " && l[" + key + "] in " + admit.CELStrings(e.Values)
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			terms = append(terms, in)
		case metav1.LabelSelectorOpNotIn:
			terms = append(terms, "!("+in+")")
		case metav1.LabelSelectorOpExists:
			terms = append(terms, has)
		case metav1.LabelSelectorOpDoesNotExist:
			terms = append(terms, "!("+has+")")
		}
	}
	return terms
}

// holds reports whether a gate may hold a pod back. It does not hold a pod that was never scheduled.
func holds(pod *corev1.Pod) bool { return guards(pod) && pod.Spec.NodeName != "" }

// guards reports whether a pod stays in its gates. A pod that is leaving already, has ended, or was released needs none. A
// pod that is not scheduled yet must not lose its gate before it runs.
func guards(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Annotations[deletionv1alpha1.ReleaseAnnotation] == "" &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// held is the CEL expression of holds for oldObject.
func held() string {
	return guarded() + " && " + admit.CELValue("oldObject.spec.nodeName", "''") + " != ''"
}

// guarded is the CEL expression of guards for oldObject.
func guarded() string {
	return strings.Join([]string{
		"!has(oldObject.metadata.deletionTimestamp)",
		annotation("oldObject", deletionv1alpha1.ReleaseAnnotation) + " == ''",
		"!(" + admit.CELValue("oldObject.status.phase", "''") + " in ['Succeeded', 'Failed'])",
	}, " && ")
}

// annotation returns the CEL expression for the value of an annotation, or an empty string.
func annotation(at, key string) string {
	return bindValue(metadataField(at, "annotations"), fmt.Sprintf("'%[1]s' in a ? a['%[1]s'] : ''", key))
}

// bindValue returns a CEL expression that evaluates a map once, names it a, and uses it.
func bindValue(value, use string) string { return "[" + value + "].map(a, " + use + ")[0]" }

// deleted is the CEL expression for deletions that a gate may hold back. The API server lets all others pass without a
// call, also while Postern is away.
func deleted(gates []*gate) string {
	final := "request.userInfo.username == '" + nodeUser + "' + " + admit.CELValue("oldObject.spec.nodeName", "''") +
		" && has(request.options) && request.options != null && has(request.options.gracePeriodSeconds) && request.options.gracePeriodSeconds == 0"
	return "(" + anySelection(gates, "oldObject") + ") && " + held() +
		" && !(request.userInfo.username in " + admit.CELStrings([]string{podCollector, namespaceController}) + ") && !(" + final + ")"
}

func anySelection(gates []*gate, at string) string {
	terms := make([]string, 0, len(gates))
	for _, g := range gates {
		terms = append(terms, g.selection(at))
	}
	return strings.Join(terms, " || ")
}

// evicted is the CEL expression for evictions. An Eviction has no labels of the pod.
func evicted(gates []*gate) string {
	var names []string
	for _, g := range gates {
		if len(g.Namespaces) == 0 {
			return ""
		}
		names = append(names, g.Namespaces...)
	}
	slices.Sort(names)
	return "has(request.namespace) && request.namespace in " + admit.CELStrings(slices.Compact(names))
}

// lacks is the CEL expression for users without a permission for gates in the namespace of the request.
func lacks(verb string) string {
	return fmt.Sprintf("!authorizer.group('%s').resource('%s').namespace(has(request.namespace) ? request.namespace : '').check('%s').allowed()",
		deletionv1alpha1.GroupName, deletionv1alpha1.Resource, verb)
}

// forgedAtCreation is the CEL expression for new objects with an annotation of the plugin, from users who may not set it.
func forgedAtCreation() string {
	set := func(key, verb string) string {
		return "(" + annotation("object", key) + " != '' && " + lacks(verb) + ")"
	}
	return set(deletionv1alpha1.WaitingAnnotation, deletionv1alpha1.RecordVerb) + " || " + set(deletionv1alpha1.ReleaseAnnotation, deletionv1alpha1.ReleaseVerb)
}

// forged is the CEL expression for changes that take a permission, by users who do not have it.
func forged(gates []*gate) string {
	differs := func(key string) string { return annotation("object", key) + " != " + annotation("oldObject", key) }
	var leaves []string
	for _, g := range gates {
		leaves = append(leaves, g.selection("oldObject")+" && !"+g.selection("object"))
	}
	seconds := func(at string) string { return admit.CELValue(at+".spec.activeDeadlineSeconds", "-1") }
	return "(" + differs(deletionv1alpha1.WaitingAnnotation) + " && " + lacks(deletionv1alpha1.RecordVerb) + ") || ((" +
		differs(deletionv1alpha1.ReleaseAnnotation) + " || (" + guarded() + " && (" + strings.Join(leaves, " || ") + " || " +
		seconds("object") + " != " + seconds("oldObject") + " && (" + anySelection(gates, "oldObject") + ")))) && " + lacks(deletionv1alpha1.ReleaseVerb) + ")"
}
