package podpreset

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/footprint"
	"github.com/postern-dev/postern/internal/quantities"
	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/internal/typed"
	"github.com/postern-dev/postern/pkg/admit"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

const (
	// maxSelector is the largest number of requirements and values of a selector. Every new pod is compared with all of them.
	maxSelector = 1000
	// maxCached is how much memory in bytes the spec of a preset in the cache may take. A preset that sets the address of a proxy
	// in two variables takes 697. Users choose how many presets there are, and empty items take many times as much as in etcd.
	maxCached = 8 << 10
	// maxLarge is how many presets that the cache does not have a pod may need. Each of them is a call of the API server.
	maxLarge = 16
	// maxLargeMemory is how much memory in bytes their specs may take together. Pods get at most 1.5 MiB, which take a few times as much
	// in memory, except for content that no pod may have.
	maxLargeMemory = 8 << 20
)

// preset is a PodPreset in the cache. All requests share it, so it must not be modified.
type preset struct {
	settingsv1alpha1.PodPreset
	selector labels.Selector
	// memory is how much memory in bytes the spec takes, and podMemory and containerMemory how much it adds to a pod, without
	// the annotation, and to each of its containers.
	memory, podMemory, containerMemory int64
	// isTooLarge is true for a preset in the cache without its volumes, variables and mounts. Whoever needs them reads the preset
	// from the API server, within the memory of a request.
	isTooLarge bool
	// err is the reason why the preset cannot be evaluated, or nil.
	err error
}

// presets looks up the presets of a namespace.
type presets struct {
	// sources are the API groups. If two presets have the same name, the first source wins.
	sources []source
}

// source is an API group with presets.
type source struct {
	cache.SharedIndexInformer

	live dynamic.NamespaceableResourceInterface
}

func newPresets(d admit.Deps, legacy bool) (*presets, error) {
	p := &presets{}
	add := func(factory dynamicinformer.DynamicSharedInformerFactory, gvr schema.GroupVersionResource) {
		p.sources = append(p.sources, source{factory.ForResource(gvr).Informer(), d.Dynamic.Resource(gvr)})
	}
	add(d.CustomInformers, settingsv1alpha1.GroupVersionResource())
	if legacy {
		add(d.OptionalInformers, settingsv1alpha1.LegacyGroupVersion().WithResource(settingsv1alpha1.Resource))
	}
	for _, s := range p.sources {
		if err := s.SetTransform(compiled); err != nil {
			return nil, fmt.Errorf("watching presets: %w", err)
		}
	}
	return p, nil
}

// compiled is the transformation of the informers. It converts presets into their type and compiles their selectors. It omits the
// spec of a large preset.
func compiled(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	p := compile(u)
	p.measure(u)
	p.isTooLarge = p.memory > maxCached
	if p.isTooLarge || p.err != nil {
		p.Spec = settingsv1alpha1.PodPresetSpec{}
	}
	return p, nil
}

// compile converts a preset. It records an error in the preset, because a returned error would keep an older version in
// the cache.
func compile(u *unstructured.Unstructured) *preset {
	p := &preset{}
	// API servers do not parse the quantities of custom resources.
	if path := quantities.In(u.Object["spec"]); path != "" {
		p.err = &farError{path}
	} else if err := typed.From(u, &p.PodPreset); err != nil {
		p.PodPreset, p.err = settingsv1alpha1.PodPreset{}, fmt.Errorf("decoding: %w", err)
	} else if size := sizeOfSelector(&p.Spec.Selector); size > maxSelector {
		p.err = fmt.Errorf("the label selector has %d requirements and values, want at most %d", size, maxSelector)
	} else if p.selector, err = metav1.LabelSelectorAsSelector(&p.Spec.Selector); err != nil {
		p.err = fmt.Errorf("label selector conversion failed: %w", err)
	}
	for i := range p.Spec.Volumes {
		// kube-apiserver set this default in presets too. The following plugins expect a source.
		if v := &p.Spec.Volumes[i]; v.VolumeSource == (corev1.VolumeSource{}) {
			v.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()}
	// The annotation of kubectl apply contains the whole object again.
	p.ObjectMeta = metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}
	return p
}

// measure notes how much memory the spec takes, and how much of it pods get. It reads the text of the author: a quantity may take
// more than its canonical form.
func (p *preset) measure(u *unstructured.Unstructured) {
	spec, _ := u.Object["spec"].(map[string]any)
	memoryOf := func(field string, t reflect.Type) int64 {
		text, err := json.Marshal(spec[field])
		if err != nil {
			p.err = fmt.Errorf("measuring %s: %w", field, err)
		}
		return footprint.Of(text, t)
	}
	p.podMemory = memoryOf("volumes", reflect.TypeFor[[]corev1.Volume]())
	p.containerMemory = memoryOf("env", reflect.TypeFor[[]corev1.EnvVar]()) + memoryOf("envFrom", reflect.TypeFor[[]corev1.EnvFromSource]()) +
		memoryOf("volumeMounts", reflect.TypeFor[[]corev1.VolumeMount]())
	p.memory = memoryOf("selector", reflect.TypeFor[metav1.LabelSelector]()) + p.podMemory + p.containerMemory
}

// sizeOfSelector returns the number of requirements and values of a selector.
func sizeOfSelector(s *metav1.LabelSelector) int {
	size := len(s.MatchLabels) + len(s.MatchExpressions)
	for _, e := range s.MatchExpressions {
		size += len(e.Values)
	}
	return size
}

// annotationSize returns the size in bytes of the annotation that the preset adds to a pod.
func (p *preset) annotationSize() int {
	return len(applied) + len(p.Name) + len(p.ResourceVersion) + 2*itemOverhead
}

var errUnsynced = errors.New("the presets are not known yet")

// farError is the error for a preset with a quantity that Postern does not compute with, at a path in the spec.
type farError struct{ path string }

func (e *farError) Error() string { return e.path + ": " + quantities.ErrFarCustom.Error() }

// tooManyError says why the presets that select a pod are too many.
type tooManyError string

func (e tooManyError) Error() string { return "the PodPresets that select the pod " + string(e) }

var errTooLargeTogether = tooManyError(fmt.Sprintf(
	"are too large: at most %d of them may take more than %d bytes of memory, and at most %d together", maxLarge, maxCached, maxLargeMemory))

// invalidError is the error for a preset that cannot be evaluated.
type invalidError struct{ preset *preset }

func (e *invalidError) Error() string {
	return fmt.Sprintf("PodPreset %q: %v", e.preset.Name, e.preset.err)
}

// match is a preset in the cache that selects a pod or cannot be evaluated.
type match struct {
	*preset

	source *source
}

// selecting returns the presets of a namespace that select a pod, sorted by name. Callers must not modify them.
func (p *presets) selecting(ctx context.Context, namespace string, pod *corev1.Pod) ([]*preset, error) {
	matches, err := p.matching(ctx, namespace, pod.Labels)
	if err != nil || len(matches) == 0 {
		return nil, err
	}
	if err := check(matches, pod); err != nil {
		return nil, err
	}
	out, memory := make([]*preset, 0, len(matches)), int64(0)
	for _, m := range matches {
		item := m.preset
		if item.isTooLarge {
			if item, err = m.source.read(ctx, item); err != nil {
				return nil, err
			}
			// It may have changed.
			if item != nil {
				memory += item.memory
			}
			if memory > maxLargeMemory {
				return nil, errTooLargeTogether
			}
		}
		switch {
		case item == nil:
			// It was deleted.
		case item.err != nil:
			return nil, &invalidError{item}
		case item.selects(pod.Labels):
			out = append(out, item)
		}
	}
	return out, nil
}

// matching returns the presets of a namespace that select a pod with the given labels or cannot be evaluated, sorted by name.
func (p *presets) matching(ctx context.Context, namespace string, pod labels.Set) ([]match, error) {
	var out []match
	for i := range p.sources {
		s := &p.sources[i]
		if !s.HasSynced() {
			return nil, errUnsynced
		}
		items, err := s.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			return nil, fmt.Errorf("listing pod presets failed: %w", err)
		}
		for _, obj := range items {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("filtering pod presets: %w", err)
			}
			item, ok := obj.(*preset)
			if ok && (item.err != nil || item.selects(pod)) && !p.has(p.sources[:i], item) {
				out = append(out, match{item, s})
			}
		}
	}
	slices.SortFunc(out, func(a, b match) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// check returns an error if a preset cannot be evaluated, or if there are more presets than a pod can have. The authors of presets
// choose how many there are, but not how much time the request has.
func check(matches []match, pod *corev1.Pod) error {
	large, memory, annotations := 0, int64(0), 0
	for key, value := range pod.Annotations {
		annotations += len(key) + len(value)
	}
	for _, m := range matches {
		if m.err != nil {
			return &invalidError{m.preset}
		}
		if m.isTooLarge {
			large++
			memory += m.memory
		}
		key := applied + m.Name
		if old, ok := pod.Annotations[key]; ok {
			annotations -= len(key) + len(old)
		}
		annotations += len(key) + len(m.ResourceVersion)
	}
	switch {
	case annotations > validation.TotalAnnotationSizeLimitB:
		return tooManyError(fmt.Sprintf("have more annotations than fit: with those of the pod, they take more than %d bytes", validation.TotalAnnotationSizeLimitB))
	case large > maxLarge || memory > maxLargeMemory:
		return errTooLargeTogether
	}
	return nil
}

// selects reports whether the selector of a preset can be evaluated and matches a pod.
func (p *preset) selects(pod labels.Set) bool { return p.err == nil && p.selector.Matches(pod) }

// read returns the preset that the API server has now, or nil if it was deleted. The memory of the typed spec is held until the
// request ends, and that of the untyped object only while the preset is read.
func (s *source) read(ctx context.Context, item *preset) (*preset, error) {
	reading, end := reads.Scope(ctx)
	defer end()
	u, err := s.live.Namespace(item.Namespace).Get(reading, item.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // That there is none is an answer.
	}
	if err != nil {
		return nil, fmt.Errorf("reading PodPreset %q: %w", item.Name, err)
	}
	p := compile(u)
	p.measure(u)
	end()
	err = reads.Hold(ctx, footprint.WithSpare(p.memory))
	if errors.Is(err, reads.ErrTooLarge) {
		return nil, tooManyError("need more memory than one request may have")
	}
	return p, err
}

// has reports whether a source has a preset with the namespace and the name of item.
func (p *presets) has(sources []source, item *preset) bool {
	return slices.ContainsFunc(sources, func(s source) bool {
		_, ok, err := s.GetStore().GetByKey(cache.NewObjectName(item.Namespace, item.Name).String())
		return ok && err == nil
	})
}
