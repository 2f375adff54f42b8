package eventratelimit

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/postern-dev/postern/pkg/admit"
)

const (
	apiVersion = "eventratelimit.admission.k8s.io/v1alpha1"
	kind       = "Configuration"
	// defaultCacheSize bounds the buckets of a limit without a cacheSize.
	defaultCacheSize = 4096
)

// config is the plugin's configuration: kube-apiserver's format with two additional fields.
type config struct {
	metav1.TypeMeta `json:",inline"`

	Limits []limit `json:"limits"`
	// IncludeEventsV1 also limits events of the group events.k8s.io.
	IncludeEventsV1 bool `json:"includeEventsV1"`
	// Replicas is the number of Postern replicas that share the limits.
	Replicas int32 `json:"replicas"`
}

// limitType selects the key of the buckets.
type limitType string

const (
	perServer          limitType = "Server"
	perNamespace       limitType = "Namespace"
	perUser            limitType = "User"
	perSourceAndObject limitType = "SourceAndObject"
)

type limit struct {
	Type  limitType `json:"type"`
	QPS   int32     `json:"qps"`
	Burst int32     `json:"burst"`
	// CacheSize bounds the number of buckets; 0 means the default. A Server limit has only one bucket.
	CacheSize int32 `json:"cacheSize"`
}

func load(data []byte) (config, error) {
	c := config{Replicas: 1}
	if data == nil {
		return c, errors.New("it needs a configuration with one limit at least, such as " +
			`{"apiVersion": "` + apiVersion + `", "kind": "` + kind + `", "limits": [{"type": "Server", "qps": 100, "burst": 200}]}`)
	}
	if err := admit.DecodeVersionedConfig(data, &c, &c.TypeMeta, apiVersion, kind); err != nil {
		return c, err
	}
	if c.Replicas < 1 {
		return c, admit.InvalidField("replicas", "want 1 at least, not %d", c.Replicas)
	}
	return c, told(c.validate())
}

// told returns all mistakes.
func told(wrong field.ErrorList) error {
	var errs []error
	for _, w := range wrong {
		errs = append(errs, admit.InvalidField(w.Field, "%s", w.ErrorBody()))
	}
	return errors.Join(errs...)
}

// validate applies kube-apiserver's validation.
func (c config) validate() field.ErrorList {
	var wrong field.ErrorList
	path := field.NewPath("limits")
	if len(c.Limits) == 0 {
		wrong = append(wrong, field.Invalid(path, c.Limits, "must not be empty"))
	}
	for i, l := range c.Limits {
		at := path.Index(i)
		switch l.Type {
		case perServer, perNamespace, perUser, perSourceAndObject:
		default:
			wrong = append(wrong, field.NotSupported(at.Child("type"), l.Type, []limitType{perServer, perNamespace, perUser, perSourceAndObject}))
		}
		if l.Burst <= 0 {
			wrong = append(wrong, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			wrong = append(wrong, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.Type != perServer && l.CacheSize < 0 {
			wrong = append(wrong, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return wrong
}
