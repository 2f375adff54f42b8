package podsecurity

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecurity "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/load"
	podsecurityv1 "k8s.io/pod-security-admission/admission/api/v1"
	podsecurityv1alpha1 "k8s.io/pod-security-admission/admission/api/v1alpha1"
	podsecurityv1beta1 "k8s.io/pod-security-admission/admission/api/v1beta1"
	"k8s.io/pod-security-admission/admission/api/validation"
	"k8s.io/pod-security-admission/api"

	"github.com/postern-dev/postern/pkg/admit"
)

const kind = "PodSecurityConfiguration"

// config is the plugin's configuration. All versions of kube-apiserver's configuration have the same fields.
type config struct {
	metav1.TypeMeta `json:",inline"`
	Defaults        podsecurityv1.PodSecurityDefaults   `json:"defaults"`
	Exemptions      podsecurityv1.PodSecurityExemptions `json:"exemptions"`
	// DefaultsOnly skips the modes for which a namespace has a label, because kube-apiserver's own plugin evaluates
	// them. kube-apiserver's configuration has no such field.
	DefaultsOnly bool `json:"defaultsOnly"`
}

// loadConfig returns the configuration in the form of the library, and whether the plugin evaluates only defaults.
// Without data it returns the library's defaults.
func loadConfig(data []byte) (*podsecurity.PodSecurityConfiguration, bool, error) {
	c, err := decode(data)
	if err != nil {
		return nil, false, err
	}
	document, err := json.Marshal(podsecurityv1.PodSecurityConfiguration{TypeMeta: c.TypeMeta, Defaults: c.Defaults, Exemptions: c.Exemptions})
	if err != nil {
		return nil, false, fmt.Errorf("encoding the configuration: %w", err)
	}
	out, err := load.LoadFromData(document)
	if err != nil {
		return nil, false, &admit.ConfigError{Err: err}
	}
	var wrong []error
	for _, w := range validation.ValidatePodSecurityConfiguration(out) {
		wrong = append(wrong, admit.InvalidField(w.Field, "%s", w.ErrorBody()))
	}
	if len(wrong) > 0 {
		return nil, false, errors.Join(wrong...)
	}
	defaults, err := podsecurity.ToPolicy(out.Defaults)
	if err != nil {
		return nil, false, &admit.ConfigError{Field: "defaults", Err: err}
	}
	if c.DefaultsOnly && defaults.FullyPrivileged() {
		return nil, false, admit.InvalidField("defaultsOnly", "all defaults are %s, so there is nothing to evaluate", api.LevelPrivileged)
	}
	return out, c.DefaultsOnly, nil
}

// isPrivileged reports whether the defaults, which are valid, are privileged in all modes.
func isPrivileged(defaults podsecurity.PodSecurityDefaults) bool {
	p, err := podsecurity.ToPolicy(defaults)
	return err == nil && p.FullyPrivileged()
}

func decode(data []byte) (config, error) {
	if len(data) == 0 {
		return config{TypeMeta: metav1.TypeMeta{APIVersion: podsecurityv1.SchemeGroupVersion.String(), Kind: kind}}, nil
	}
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return c, err
	}
	versions := []string{
		podsecurityv1.SchemeGroupVersion.String(), podsecurityv1beta1.SchemeGroupVersion.String(), podsecurityv1alpha1.SchemeGroupVersion.String(),
	}
	switch {
	case !slices.Contains(versions, c.APIVersion):
		return c, admit.InvalidField("apiVersion", "want %s, not %q", versions[0], c.APIVersion)
	case c.Kind != kind:
		return c, admit.InvalidField("kind", "want %s, not %q", kind, c.Kind)
	}
	return c, nil
}
