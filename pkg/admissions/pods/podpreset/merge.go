package podpreset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/postern-dev/postern/internal/footprint"
	"github.com/postern-dev/postern/internal/kinds/podspec"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

const (
	// maxAdded is the number of bytes, encoded as protobuf, that presets may add to a pod. etcd stores no larger object,
	// and Postern must not run out of memory for a pod that cannot be stored.
	maxAdded = footprint.StoredBytes
	// maxDistinct is the number of bytes of the items that differ, of which the pod may have as much as can be added to it. With
	// more than that, the pod gets too much, or it conflicts.
	maxDistinct = 2 * maxAdded
	// itemOverhead is the number of bytes of an item's tag and length.
	itemOverhead = 4
	// bytesPerItem is the memory in bytes that apply needs for an item: its keys, where it comes, and its place in lists.
	bytesPerItem = 300
	// maxItems is the number of items that differ, or come again, and fit into maxDistinct.
	maxItems = maxDistinct / (itemOverhead + 2)
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

// growth returns the memory in bytes that the presets add to a pod, and that apply needs for a time. They are upper bounds: the pod may
// have the items already, and a preset those of another one.
func growth(pod *corev1.Pod, selected []*preset) (added, needed int64) {
	containers := int64(len(pod.Spec.InitContainers) + len(pod.Spec.Containers) + len(pod.Spec.EphemeralContainers))
	items := 0
	for _, p := range selected {
		added += p.podMemory + containers*p.containerMemory
		items += len(p.Spec.Volumes) + len(p.Spec.Env) + len(p.Spec.EnvFrom) + len(p.Spec.VolumeMounts)
	}
	added = min(added, maxAdded*footprint.BytesPerProtobuf) + footprint.OfMap(reflect.TypeFor[map[string]string](), len(pod.Annotations)+len(selected))
	return added, int64(min(items, maxItems)) * bytesPerItem
}

// apply adds the content of the presets to the pod. It leaves the pod unchanged if it returns an error.
//
// Upstream: safeToApplyPodPresetsOnPod, applyPodPresetsOnPod.
func apply(ctx context.Context, pod *corev1.Pod, selected []*preset) error {
	m := &merger{room: maxAdded, distinct: maxDistinct}
	for _, p := range selected {
		m.room -= p.annotationSize()
	}
	added, err := collect(ctx, m, selected, volumeItems())
	if err != nil {
		return err
	}
	volumes, err := merge(ctx, m, pod.Spec.Volumes, added)
	if err != nil {
		return err
	}
	if err := m.prepare(ctx, selected); err != nil {
		return err
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
	env     *additions[corev1.EnvVar]
	mounts  *additions[corev1.VolumeMount]
	envFrom *additions[corev1.EnvFromSource]
	// room is how many more bytes may be added.
	room int
	// distinct is how many more bytes the items may have that differ.
	distinct int
}

// prepare collects the additions to each container.
func (m *merger) prepare(ctx context.Context, selected []*preset) (err error) {
	if m.env, err = collect(ctx, m, selected, envItems()); err != nil {
		return err
	}
	if m.mounts, err = collect(ctx, m, selected, mountItems()); err != nil {
		return err
	}
	m.envFrom, err = collect(ctx, m, selected, envFromItems())
	return err
}

// container returns a func that changes the container, or a conflict.
func (m *merger) container(ctx context.Context, c podspec.Container) (func(), error) {
	env, err := merge(ctx, m, c.Env, m.env)
	if err != nil {
		return nil, err
	}
	mounts, err := merge(ctx, m, c.VolumeMounts, m.mounts)
	if err != nil {
		return nil, err
	}
	envFrom, err := merge(ctx, m, c.EnvFrom, m.envFrom)
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
	// keys returns the one or two keys of an item. An item of a preset is added if the list has no item with its first key.
	keys func(*T) [2]key
	// align, unless nil, removes the differences between an item of the pod and one of a preset that are no conflict. The
	// API server sets defaults in pods, but not in presets.
	align func(found, item *T)
	// repeats allows several presets to add the same item.
	repeats bool
	// loose means that an item of the pod may equal two items of presets that differ.
	loose bool
}

// object is a part of a pod.
type object[T any] interface {
	*T
	DeepCopyInto(out *T)
	Size() int
}

// additions are the items of all presets for lists of one kind.
type additions[T any] struct {
	items[T]
	list []addition[T]
	// places is the number of items, with those that are repeated.
	places int
	// numbers has a number from 1 for each key of the items.
	numbers map[key]int
}

// addition is an item of a preset.
type addition[T any] struct {
	preset *preset
	item   *T
	// numbers are those of the keys, or 0.
	numbers [2]int
	// place is where the item comes in the order of all items, and repeated where it comes again.
	place    int
	repeated []int
}

// collect returns the items of the presets, in their order. If an item equals an earlier one, it is left out or becomes
// another place of the earlier one, so that no container compares both. An item that differs from an earlier one conflicts in every
// container, so it is the last one.
func collect[T any, P object[T]](ctx context.Context, m *merger, selected []*preset, kind items[T]) (*additions[T], error) {
	out := &additions[T]{items: kind, numbers: map[key]int{}}
	first := []int{0} // the index of an item plus 1, by the number of its first key
	for _, p := range selected {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("collecting the content of PodPresets: %w", err)
		}
		list := kind.of(&p.Spec)
		for i := range list {
			a := addition[T]{preset: p, item: &list[i], place: out.places}
			out.places++
			for n, k := range kind.keys(a.item) {
				if k == (key{}) {
					continue
				}
				number, ok := out.numbers[k]
				if !ok {
					number = len(first)
					out.numbers[k], first = number, append(first, 0)
				}
				a.numbers[n] = number
			}
			found := &first[a.numbers[0]]
			if *found > 0 && equal[T, P](out.list[*found-1].item, a.item, kind.align) {
				if earlier := &out.list[*found-1]; kind.repeats {
					earlier.repeated = append(earlier.repeated, a.place)
				}
				continue
			}
			if m.distinct -= P(a.item).Size() + itemOverhead; m.distinct < 0 {
				return nil, errTooLarge
			}
			out.list = append(out.list, a)
			switch {
			case *found == 0:
				*found = len(out.list)
			case !kind.repeats && !kind.loose:
				return out, nil
			}
		}
	}
	return out, nil
}

// merge returns the list with the items of all presets. It returns a *conflictError for an item that differs from another
// item with one of its keys. If the list has several items with a key, only the last one counts.
func merge[T any, P object[T]](ctx context.Context, m *merger, list []T, added *additions[T]) ([]T, error) {
	out := slices.Clip(list)
	if len(added.list) == 0 {
		return out, nil
	}
	known := added.known(list)
	var places []place[T]
	for i := range added.list {
		a := &added.list[i]
		if i%1000 == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("applying PodPreset %q: %w", a.preset.Name, ctx.Err())
		}
		for n, number := range a.numbers {
			if number == 0 {
				continue
			}
			if found := known[number]; found != nil {
				if found != a.item && !equal[T, P](found, a.item, added.align) {
					k := added.keys(a.item)[n]
					return nil, &conflictError{a.preset, fmt.Sprintf("%s %q", k[0], short(k[1]))}
				}
				continue
			}
			if !added.repeats {
				known[number] = a.item
			}
			if n > 0 {
				continue
			}
			places = append(places, place[T]{a.place, a.item})
			for _, at := range a.repeated {
				places = append(places, place[T]{at, a.item})
			}
		}
	}
	for _, p := range places {
		if m.room -= P(p.item).Size() + itemOverhead; m.room < 0 {
			return nil, errTooLarge
		}
	}
	slices.SortFunc(places, func(a, b place[T]) int { return cmp.Compare(a.at, b.at) })
	out = slices.Grow(out, len(places))
	for _, p := range places {
		// Requests share the presets, and later plugins may change the pod.
		out = append(out, *new(T))
		P(p.item).DeepCopyInto(&out[len(out)-1])
	}
	return out, nil
}

// place is an item that a list gets, and where it comes in the order of all items.
type place[T any] struct {
	at   int
	item *T
}

// known returns the items of a list by the numbers of their keys.
func (a *additions[T]) known(list []T) []*T {
	out := make([]*T, len(a.numbers)+1)
	for i := range list {
		for _, k := range a.keys(&list[i]) {
			if n, ok := a.numbers[k]; ok {
				out[n] = &list[i]
			}
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
