package noderestriction

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/postern-dev/postern/pkg/admit"
)

// reservedDomains are the label domains of Kubernetes. A node may set only the kubelet labels in these
// domains and their subdomains. The domain node-restriction.kubernetes.io is reserved for labels that no node
// can set on itself, so that pods can rely on them.
func reservedDomains() []string { return []string{"kubernetes.io", "k8s.io"} }

// isForbiddenLabel reports whether a node may not set, change or remove a label.
func isForbiddenLabel(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	isReserved := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	return ok && slices.ContainsFunc(reservedDomains(), isReserved) && !kubeletapis.IsKubeletLabel(key)
}

// maxLabel is the length of the longest valid label key. The API server refuses longer keys after the
// mutating phase. Matching longer keys would exceed the cost budget of conditions.
const maxLabel = validation.DNS1123SubdomainMaxLength + 1 + validation.LabelValueMaxLength

// celForbidsLabels is isForbiddenLabel in CEL, for any label of an object. If there is another object, labels
// with the same value in both objects are skipped.
func celForbidsLabels(object, other string) string {
	labels := admit.CELValue(object+".metadata.labels", "{}")
	differs := ""
	if other != "" {
		before := admit.CELValue(other+".metadata.labels", "{}")
		differs = fmt.Sprintf("!(key in %s && %s[key] == %s[key]) && ", before, before, labels)
	}
	forbidden := fmt.Sprintf("%s(size(key) > %d || key.matches(r'%s') && !key.matches(r'%s') && !(key in %s))",
		differs, maxLabel, celDomains(reservedDomains()), celDomains(kubeletapis.KubeletLabelNamespaces()), admit.CELStrings(kubeletapis.KubeletLabels()))
	return admit.CELAny(labels, "key", forbidden)
}

// celDomains is a regular expression for labels in the reserved domains and their subdomains.
func celDomains(domains []string) string {
	quoted := make([]string, 0, len(domains))
	for _, d := range domains {
		quoted = append(quoted, regexp.QuoteMeta(d))
	}
	return `^([^/]*\.)?(` + strings.Join(quoted, "|") + ")/"
}
