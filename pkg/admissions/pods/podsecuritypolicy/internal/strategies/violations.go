package strategies

import "k8s.io/apimachinery/pkg/util/validation/field"

const (
	// maxViolations is the largest number of violations of one policy that a denial names. A pod may have tens of thousands.
	maxViolations = 200
	// MaxText is the number of bytes after which a denial names no more violations. Each may contain a long value of the
	// pod. A violation is never cut.
	MaxText = 64 << 10
)

// violations collects the violations of one policy. Those that a denial does not name are dropped.
type violations struct {
	list field.ErrorList
	// text is the number of bytes of the violations.
	text int
}

func (v *violations) add(errs ...*field.Error) {
	for _, err := range errs {
		if v.full() {
			return
		}
		v.list, v.text = append(v.list, err), v.text+len(err.Error())
	}
}

func (v *violations) full() bool { return len(v.list) == maxViolations || v.text >= MaxText }
