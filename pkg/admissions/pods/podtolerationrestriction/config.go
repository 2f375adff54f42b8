package podtolerationrestriction

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

const (
	apiVersion = "podtolerationrestriction.admission.k8s.io/v1alpha1"
	kind       = "Configuration"
)

// config is the plugin's configuration, as kube-apiserver has it.
type config struct {
	metav1.TypeMeta `json:",inline"`

	// Default are the tolerations of pods in namespaces that name none.
	Default []corev1.Toleration `json:"default"`
	// Whitelist are those that such pods may have. Empty, they may have all.
	Whitelist []corev1.Toleration `json:"whitelist"`
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

func check(tolerations []corev1.Toleration, at *field.Path) error {
	for i, t := range tolerations {
		if wrong := invalid(t, at.Index(i)); wrong != nil {
			return admit.InvalidField(wrong.Field, "%s", wrong.ErrorBody())
		}
	}
	return nil
}
