package podpreset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

const (
	// maxAdded is the number of bytes, encoded as protobuf, that presets may add to a pod. etcd stores no larger object,
	// and Postern must not run out of memory for a pod that cannot be stored.
	maxAdded = 3 << 19
	// maxUnreserved is the number of bytes that presets add to an ordinary pod.
	maxUnreserved = 4 << 10
	// itemOverhead is the number of bytes of an item's tag and length.
	itemOverhead = 4
)

var errTooLarge = fmt.Errorf("the PodPresets add more than %d bytes to the pod", maxAdded)

// conflictError says which preset has an item that differs from an item of the pod or of an earlier preset.
type conflictError struct {
	preset *preset
	item   string
}

func (e *conflictError) Error() string {
	return fmt.Sprintf("PodPreset %q conflicts on %s", e.preset.Name, e.item)
}

// apply adds the content of the presets to the pod. It leaves the pod unchanged if it returns an error.
//
// Upstream: safeToApplyPodPresetsOnPod, applyPodPresetsOnPod.
func apply(ctx context.Context, pod *corev1.Pod, selected []*preset) error {
	m := &merger{presets: selected, room: maxAdded}
	for _, p := range selected {
		m.room -= p.annotationSize()
	}
	volumes, err := merge(ctx, m, pod.Spec.Volumes, volumeItems())
	if err != nil {
		return err
	}
	if m.room < 0 {
		return errTooLarge
	}
	changes := []func(){func() { pod.Spec.Volumes = volumes }}
	for c := range podspec.EachContainer(&pod.Spec) {
		change, err := m.container(ctx, c)
		if err != nil {
			if conflict, ok := errors.AsType[*conflictError](err); ok {
				conflict.item += fmt.Sprintf(" of container %q", short(c.Name))
			}
			return err
		}
		// Nothing is added to ephemeral containers, but they can conflict.
		if c.Kind != podspec.EphemeralContainers {
			changes = append(changes, change)
		}
	}
	for _, change := range changes {
		change()
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	for _, p := range selected {
		pod.Annotations[applied+p.Name] = p.ResourceVersion
	}
	return nil
}

// merger adds items of presets to the lists of one pod.
type merger struct {
	presets []*preset
	// room is how many more bytes may be added.
	room int
}

// container returns a func that changes the container, or a conflict.
func (m *merger) container(ctx context.Context, c podspec.Container) (func(), error) {
	env, err := merge(ctx, m, c.Env, envItems())
	if err != nil {
		return nil, err
	}
	mounts, err := merge(ctx, m, c.VolumeMounts, mountItems())
	if err != nil {
		return nil, err
	}
	envFrom, err := merge(ctx, m, c.EnvFrom, envFromItems())
	if err != nil {
		return nil, err
	}
	return func() { c.Env, c.VolumeMounts, c.EnvFrom = env, mounts, envFrom }, nil
}

// key identifies an item of a list. Its first string says what identifies the item.
type key [4]string

// items is what merge has to know about the items of a list.
type items[T any] struct {
	of func(*settingsv1alpha1.PodPresetSpec) []T
	// keys returns the keys of an item. An item of a preset is added if the list has no item with its first key.
	keys func(*T) []key
	// align, unless nil, removes the differences between an item of the pod and one of a preset that are no conflict. The
	// API server sets defaults in pods, but not in presets.
	align func(found, item *T)
	// repeats allows several presets to add the same item.
	repeats bool
}

// object is a part of a pod.
type object[T any] interface {
	*T
	DeepCopyInto(out *T)
	Size() int
}

// merge returns the list with the items of all presets. It returns a *conflictError for an item that differs from another
// item with one of its keys. If the list has several items with a key, only the last one counts.
func merge[T any, P object[T]](ctx context.Context, m *merger, list []T, kind items[T]) ([]T, error) {
	out := slices.Clip(list)
	var known map[key]*T
	for _, p := range m.presets {
		added := kind.of(&p.Spec)
		if len(added) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("applying PodPreset %q: %w", p.Name, err)
		}
		if known == nil {
			known = index(list, kind.keys)
		}
		for i := range added {
			item := &added[i]
			for n, k := range kind.keys(item) {
				if found, ok := known[k]; ok {
					if !equal[T, P](found, item, kind.align) {
						return nil, &conflictError{p, fmt.Sprintf("%s %q", k[0], short(k[1]))}
					}
					continue
				}
				if !kind.repeats {
					known[k] = item
				}
				if n > 0 {
					continue
				}
				if m.room -= P(item).Size() + itemOverhead; m.room < 0 {
					return nil, errTooLarge
				}
				// Requests share the presets, and later plugins may change the pod.
				out = append(out, *new(T))
				P(item).DeepCopyInto(&out[len(out)-1])
			}
		}
	}
	return out, nil
}

func index[T any](list []T, keys func(*T) []key) map[key]*T {
	out := make(map[key]*T, len(list))
	for i := range list {
		for _, k := range keys(&list[i]) {
			out[k] = &list[i]
		}
	}
	return out
}

// equal compares copies of two items that align may change.
func equal[T any, P object[T]](found, item P, align func(found, item *T)) bool {
	if apiequality.Semantic.DeepEqual(found, item) {
		return true
	}
	if align == nil {
		return false
	}
	var a, b T
	found.DeepCopyInto(&a)
	item.DeepCopyInto(&b)
	align(&a, &b)
	return apiequality.Semantic.DeepEqual(a, b)
}

// sizeOf returns the size of all items of a list.
func sizeOf[T any, P object[T]](list []T) int {
	total := 0
	for i := range list {
		total += P(&list[i]).Size() + itemOverhead
	}
	return total
}
