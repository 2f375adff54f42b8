package podtolerationrestriction

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// invalid returns the first error that the API server's validation would find in a
// pod's toleration, or nil. Operators that compare numbers are errors, because
// kube-apiserver validates this configuration with the gate for these operators
// disabled.
//
// Upstream: ValidateTolerations in pkg/apis/core/validation.
func invalid(t corev1.Toleration, at *field.Path) *field.Error {
	if t.Key != "" {
		if errs := metav1validation.ValidateLabelName(t.Key, at.Child("key")); len(errs) > 0 {
			return errs[0]
		}
	} else if t.Operator != corev1.TolerationOpExists {
		return field.Invalid(at.Child("operator"), t.Operator, "must be Exists where key is empty, which means all keys and values")
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if errs := validation.IsValidLabelValue(t.Value); len(errs) > 0 {
			return field.Invalid(at.Child("value"), t.Value, strings.Join(errs, "; "))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			return field.Invalid(at.Child("value"), t.Value, "must be empty where operator is Exists")
		}
	default:
		return field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists})
	}
	switch t.Effect {
	case corev1.TaintEffectNoExecute:
		return nil
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule:
		if t.TolerationSeconds != nil {
			return field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute where tolerationSeconds is set")
		}
		return nil
	default:
		return field.NotSupported(at.Child("effect"), t.Effect, []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute})
	}
}
