package noderestriction

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// reservedDomains are those of Kubernetes, in which a node may not set labels, other
// than those of kubelets. One of them is node-restriction.kubernetes.io, which is
// there for labels that pods can rely on because no node can give them to itself.
func reservedDomains() []string { return []string{"kubernetes.io", "k8s.io"} }

// kubeletDomains are those in which any label is a kubelet's.
func kubeletDomains() []string {
	return []string{corev1.LabelNamespaceSuffixKubelet, corev1.LabelNamespaceSuffixNode}
}

// kubeletLabels are the others that a kubelet gives to its node.
//
// Upstream: k8s.io/kubelet/pkg/apis KubeletLabels.
func kubeletLabels() []string {
	return []string{
		corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable,
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}
}

// isForbiddenLabel reports whether a node may not have to do with a label.
func isForbiddenLabel(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	isIn := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	return slices.ContainsFunc(reservedDomains(), isIn) && !slices.ContainsFunc(kubeletDomains(), isIn) && !slices.Contains(kubeletLabels(), key)
}

// celForbidsLabels is isForbiddenLabel in CEL, for any label of one object that the
// other one, if there is another, does not have with the same value.
func celForbidsLabels(object, other string) string {
	labels := admit.CELValue(object+".metadata.labels", "{}")
	differs := ""
	if other != "" {
		before := admit.CELValue(other+".metadata.labels", "{}")
		differs = fmt.Sprintf("!(key in %s && %s[key] == %s[key]) && ", before, before, labels)
	}
	return fmt.Sprintf("%s.exists(key, %skey.matches(r'%s') && !key.matches(r'%s') && !(key in %s))",
		labels, differs, celDomains(reservedDomains()), celDomains(kubeletDomains()), admit.CELStrings(kubeletLabels()))
}

// celDomains is a regular expression for labels in the domains, or below them.
func celDomains(domains []string) string {
	quoted := make([]string, 0, len(domains))
	for _, d := range domains {
		quoted = append(quoted, regexp.QuoteMeta(d))
	}
	return `^([^/]*\.)?(` + strings.Join(quoted, "|") + ")/"
}
