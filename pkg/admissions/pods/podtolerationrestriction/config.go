package podtolerationrestriction

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/pkg/admit"
)

const (
	apiVersion = "podtolerationrestriction.admission.k8s.io/v1alpha1"
	kind       = "Configuration"
)

// config is the plugin's configuration in kube-apiserver's format, with an additional field.
type config struct {
	metav1.TypeMeta `json:",inline"`

	// Default is the list of tolerations for namespaces without the annotation.
	Default []corev1.Toleration `json:"default"`
	// Whitelist is the list of allowed tolerations for namespaces without the
	// annotation. An empty list allows all.
	Whitelist []corev1.Toleration `json:"whitelist"`
	// KeepRedundantOnUpdate keeps all tolerations of a pod that is updated, also those that another toleration covers.
	// The API server's validation refuses an update that drops a toleration. kube-apiserver ignores the field.
	//
	// Upstream: https://github.com/kubernetes/kubernetes/issues/111745
	KeepRedundantOnUpdate bool `json:"keepRedundantOnUpdate"`
}

func load(data []byte) (config, error) {
	var c config
	if data == nil {
		return c, nil
	}
	if err := admit.DecodeVersionedConfig(data, &c, &c.TypeMeta, apiVersion, kind); err != nil {
		return c, err
	}
	if err := check(c.Default, field.NewPath("default")); err != nil {
		return c, err
	}
	return c, check(c.Whitelist, field.NewPath("whitelist"))
}

// warnings names the settings without an effect.
func (c config) warnings(d admit.Deps) []string {
	addsNothing := len(c.Default)+len(c.Whitelist) == 0
	if c.KeepRedundantOnUpdate && !addsNothing && d.APIServerRuns(name) {
		return []string{"keepRedundantOnUpdate has no effect, because the API server's own plugin drops the tolerations first"}
	}
	return d.Redundant(name, addsNothing)
}

func check(tolerations []corev1.Toleration, at *field.Path) error {
	for i, t := range tolerations {
		if wrong := invalid(t, at.Index(i)); wrong != nil {
			return admit.InvalidField(wrong.Field, "%s", wrong.ErrorBody())
		}
	}
	return nil
}
