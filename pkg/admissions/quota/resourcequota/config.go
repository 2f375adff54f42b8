package resourcequota

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	resourcequotav1 "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/v1"

	"github.com/postern-dev/postern/pkg/admissions/quota/resourcequota/internal/usage"
	"github.com/postern-dev/postern/pkg/admit"
)

// mode is what the plugin does with a request.
type mode string

const (
	// modeLimited only requires a quota for the limited resources.
	modeLimited mode = "limitedResources"
	// modeCheck also denies what would exceed a quota, and writes nothing.
	modeCheck mode = "check"
	// modeCharge also adds what a request uses to status.used of the quotas.
	modeCharge mode = "charge"
)

// defaultWarnAbove is the default of warnAbove, in percent.
const defaultWarnAbove = 80

// config is the plugin's configuration: kube-apiserver's format with two additional fields.
type config struct {
	metav1.TypeMeta `json:",inline"`

	LimitedResources []resourcequotav1.LimitedResource `json:"limitedResources"`
	// Mode defaults to check.
	Mode mode `json:"mode"`
	// WarnAbove is the share of a quota, in percent, above which the mode check warns how much is left.
	WarnAbove int64 `json:"warnAbove"`
}

func load(data []byte) (config, error) {
	c := config{WarnAbove: defaultWarnAbove}
	if len(data) > 0 {
		if err := admit.DecodeConfig(data, &c); err != nil {
			return c, err
		}
		if err := checkKind(c.TypeMeta); err != nil {
			return c, err
		}
	}
	c.Mode = cmp.Or(c.Mode, modeCheck)
	return c, c.validate()
}

// checkKind accepts the kinds that kube-apiserver accepts.
func checkKind(t metav1.TypeMeta) error {
	kinds := map[string]string{
		"apiserver.config.k8s.io/v1":              "ResourceQuotaConfiguration",
		"resourcequota.admission.k8s.io/v1beta1":  "Configuration",
		"resourcequota.admission.k8s.io/v1alpha1": "Configuration",
	}
	kind, ok := kinds[t.APIVersion]
	switch {
	case !ok:
		return admit.InvalidField("apiVersion", "want apiserver.config.k8s.io/v1, not %q", t.APIVersion)
	case t.Kind != kind:
		return admit.InvalidField("kind", "want %s, not %q", kind, t.Kind)
	}
	return nil
}

func (c config) validate() error {
	switch {
	case c.Mode != modeLimited && c.Mode != modeCheck && c.Mode != modeCharge:
		return admit.InvalidField("mode", "want %s, %s or %s, not %q", modeLimited, modeCheck, modeCharge, c.Mode)
	case c.Mode == modeLimited && len(c.LimitedResources) == 0:
		return admit.InvalidField("limitedResources", "the mode %s needs one at least", modeLimited)
	case c.WarnAbove < 0 || c.WarnAbove > 100:
		return admit.InvalidField("warnAbove", "want a share between 0 and 100 percent, not %d", c.WarnAbove)
	}
	for i, l := range c.LimitedResources {
		if l.Resource == "" || strings.ContainsAny(l.Resource, "/*") {
			return admit.InvalidField(limitedField(i, "resource"), "want a resource such as pods, not %q", l.Resource)
		}
		for _, scope := range l.MatchScopes {
			if err := checkScope(limitedField(i, "matchScopes"), scope); err != nil {
				return err
			}
		}
	}
	return nil
}

// warnings names the settings without an effect.
func (c config) warnings() []string {
	if c.Mode == modeCheck || c.WarnAbove == defaultWarnAbove {
		return nil
	}
	return []string{fmt.Sprintf("warnAbove has no effect in the mode %s", c.Mode)}
}

// checkScope refuses a scope that cannot be evaluated. Upstream: such a scope disables all quotas for the pods that it
// should limit.
func checkScope(field string, scope corev1.ScopedResourceSelectorRequirement) error {
	scopes := []corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
		corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass,
	}
	if !slices.Contains(scopes, scope.ScopeName) {
		return admit.InvalidField(field, "there is no scope %q", scope.ScopeName)
	}
	if _, err := usage.Selects(scope); err != nil {
		return admit.InvalidField(field, "scope %s: %w", scope.ScopeName, err)
	}
	return nil
}

func limitedField(i int, name string) string {
	return "limitedResources[" + strconv.Itoa(i) + "]." + name
}

// limited returns the limited resources in the form of the quota engine.
func (c config) limited() []resourcequotaapi.LimitedResource {
	out := make([]resourcequotaapi.LimitedResource, 0, len(c.LimitedResources))
	for _, l := range c.LimitedResources {
		out = append(out, resourcequotaapi.LimitedResource(l))
	}
	return out
}
