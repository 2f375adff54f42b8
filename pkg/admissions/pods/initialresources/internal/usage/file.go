package usage

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/pkg/admit"
)

// Entry is the usage of an image in a static table.
type Entry struct {
	// Image is the image of the entry. Without a tag and a digest, it matches all versions.
	Image string `json:"image"`
	// Namespace is "" for all namespaces.
	Namespace string             `json:"namespace"`
	CPU       *resource.Quantity `json:"cpu"`
	Memory    *resource.Quantity `json:"memory"`
	// Samples defaults to Enough.
	Samples *int64 `json:"samples"`
}

// table is a Source with a fixed table of entries.
type table map[tableKey]Answer

type tableKey struct {
	resource  corev1.ResourceName
	image     Image
	namespace string
}

// NewTable returns a Source of entries. It returns an error, an *admit.ConfigError with a field such as usage[0].image,
// for an entry that no query selects.
func NewTable(entries []Entry, namespaceOnly bool) (Source, error) {
	t := table{}
	for i, e := range entries {
		if err := t.add(e, namespaceOnly); err != nil {
			var wrong *admit.ConfigError
			errors.As(err, &wrong)
			return nil, admit.InvalidField(fmt.Sprintf("usage[%d].%s", i, wrong.Field), "%w", wrong.Err)
		}
	}
	return t, nil
}

func (t table) add(e Entry, namespaceOnly bool) error {
	image, err := parseAny(e.Image)
	samples := int64(Enough)
	if e.Samples != nil {
		samples = *e.Samples
	}
	switch {
	case err != nil:
		return admit.InvalidField("image", "%w", err)
	case namespaceOnly && e.Namespace == "":
		return admit.InvalidField("namespace", "want one, because of --ir-namespace-only")
	case !namespaceOnly && e.Namespace != "" && image.version == "":
		return admit.InvalidField("image", "an entry for one namespace wants a tag or a digest, unless --ir-namespace-only is set")
	case e.CPU == nil && e.Memory == nil:
		return admit.InvalidField("cpu", "want cpu, memory or both")
	case samples < 1:
		return admit.InvalidField("samples", "want 1 at least, not %d", samples)
	}
	for name, q := range map[corev1.ResourceName]*resource.Quantity{corev1.ResourceCPU: e.CPU, corev1.ResourceMemory: e.Memory} {
		if q == nil {
			continue
		}
		key := tableKey{name, image, e.Namespace}
		if _, twice := t[key]; twice {
			return admit.InvalidField(string(name), "an earlier entry has the %s of this image", name)
		}
		if t[key] = (Answer{Amount(name, *q), samples}); t[key].Value < 1 {
			return admit.InvalidField(string(name), "want more than 0, not %s", q)
		}
	}
	return nil
}

// Percentile implements Source. It ignores the window.
func (t table) Percentile(_ context.Context, q Query) (Answer, error) {
	return t[tableKey{q.Resource, q.Image, q.Namespace}], nil
}

// Amount converts a quantity into the unit of Answer.Value, rounded up.
func Amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// Quantity converts an amount in the unit of Answer.Value into a quantity.
func Quantity(name corev1.ResourceName, amount int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}
