package podsecurity

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// defaulted is a NamespaceGetter for a plugin that evaluates only defaults.
type defaulted struct {
	admission.NamespaceGetter
}

// GetNamespace implements admission.NamespaceGetter.
func (d defaulted) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := d.NamespaceGetter.GetNamespace(ctx, name)
	if err != nil {
		return nil, err
	}
	return withoutLevels(ns), nil
}

// withoutLevels returns a copy of the namespace with the level privileged for each mode that has a level label. A
// version label alone does not count, because kube-apiserver's plugin then evaluates the level privileged.
func withoutLevels(ns *corev1.Namespace) *corev1.Namespace {
	out := *ns
	out.Labels = maps.Clone(ns.Labels)
	for level, version := range map[string]string{
		api.EnforceLevelLabel: api.EnforceVersionLabel, api.AuditLevelLabel: api.AuditVersionLabel, api.WarnLevelLabel: api.WarnVersionLabel,
	} {
		if _, labelled := out.Labels[level]; labelled {
			out.Labels[level] = string(api.LevelPrivileged)
			delete(out.Labels, version)
		}
	}
	return &out
}

// inTree predicts the decisions of kube-apiserver's own plugin, which runs without a configuration.
type inTree struct {
	namespaces admission.NamespaceGetter
	evaluator  policy.Evaluator
}

// leaves reports whether this plugin has to evaluate anything that kube-apiserver's plugin does not, and prepares a
// namespace for the library. An exempt namespace is not exempt for kube-apiserver's plugin, so the library must not
// warn that its labels are ignored.
func (t *inTree) leaves(a *api.AttributesRecord, exempt []string) bool {
	ns, ok := a.Object.(*corev1.Namespace)
	if !ok {
		return true
	}
	a.Object = withoutLevels(ns)
	if old, ok := a.OldObject.(*corev1.Namespace); ok {
		a.OldObject = withoutLevels(old)
	}
	return !slices.Contains(exempt, a.Namespace)
}

// warns reports whether kube-apiserver's plugin warns about the same pod or controller. It does if the namespace has a
// label for enforce and none for warn, because the level of enforce then also applies to warn.
func (t *inTree) warns(ctx context.Context, a *api.AttributesRecord) bool {
	metadata, spec, err := admission.DefaultPodSpecExtractor{}.ExtractPodSpec(a.Object)
	if err != nil || spec == nil {
		return false
	}
	ns, err := t.namespaces.GetNamespace(ctx, a.Namespace)
	if err != nil {
		return false
	}
	latest := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	theirs, _ := api.PolicyToEvaluate(ns.Labels, api.Policy{Enforce: latest, Audit: latest, Warn: latest})
	return !policy.AggregateCheckResults(t.evaluator.EvaluatePod(theirs.Warn, metadata, spec)).Allowed
}
