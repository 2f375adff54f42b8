package podpreset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/postern-dev/postern/internal/quantities"
	"github.com/postern-dev/postern/internal/typed"
	"github.com/postern-dev/postern/pkg/admit"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

// maxSelector is the largest number of requirements and values of a selector. Every new pod is compared with all of them.
const maxSelector = 1000

// preset is a PodPreset in the cache. All requests share it, so it must not be modified.
type preset struct {
	settingsv1alpha1.PodPreset
	selector labels.Selector
	// podSize and containerSize are the largest numbers of bytes that the preset adds to a pod and to each of its
	// containers.
	podSize, containerSize int
	// err is the reason why the selector of the preset cannot be evaluated, or nil.
	err error
}

// presets looks up the presets of a namespace.
type presets struct {
	// sources are the informers of the API groups. If two presets have the same name, the first source wins.
	sources []cache.SharedIndexInformer
}

func newPresets(d admit.Deps, legacy bool) (*presets, error) {
	all := []informers.GenericInformer{d.CustomInformers.ForResource(settingsv1alpha1.GroupVersionResource())}
	if legacy {
		all = append(all, d.OptionalInformers.ForResource(settingsv1alpha1.LegacyGroupVersion().WithResource(settingsv1alpha1.Resource)))
	}
	p := &presets{}
	for _, i := range all {
		if err := i.Informer().SetTransform(compiled); err != nil {
			return nil, fmt.Errorf("watching presets: %w", err)
		}
		p.sources = append(p.sources, i.Informer())
	}
	return p, nil
}

// compiled is the transformation of the informers. It converts presets into their type and compiles their selectors.
func compiled(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	return compile(u), nil
}

// compile converts a preset. It records an error in the preset, because a returned error would keep an older version in
// the cache.
func compile(u *unstructured.Unstructured) *preset {
	p := &preset{}
	// API servers do not parse the quantities of custom resources.
	if path := quantities.In(u.Object["spec"]); path != "" {
		p.err = fmt.Errorf("%s: %w", path, quantities.ErrFar)
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
	p.containerSize = sizeOf[corev1.EnvVar](p.Spec.Env) + sizeOf[corev1.EnvFromSource](p.Spec.EnvFrom) + sizeOf[corev1.VolumeMount](p.Spec.VolumeMounts)
	p.TypeMeta = metav1.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()}
	// The annotation of kubectl apply contains the whole object again.
	p.ObjectMeta = metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}
	p.podSize = sizeOf[corev1.Volume](p.Spec.Volumes) + p.annotationSize()
	return p
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

// invalidError is the error for a preset whose selector cannot be evaluated.
type invalidError struct{ preset *preset }

func (e *invalidError) Error() string {
	return fmt.Sprintf("PodPreset %q: %v", e.preset.Name, e.preset.err)
}

// selecting returns the presets of a namespace that select a pod with the given labels, sorted by name. Callers must not
// modify them.
func (p *presets) selecting(ctx context.Context, namespace string, pod labels.Set) ([]*preset, error) {
	var out []*preset
	for i, source := range p.sources {
		if !source.HasSynced() {
			return nil, errUnsynced
		}
		items, err := source.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			return nil, fmt.Errorf("listing pod presets failed: %w", err)
		}
		for _, obj := range items {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("filtering pod presets: %w", err)
			}
			item, ok := obj.(*preset)
			switch {
			case !ok || i > 0 && p.has(p.sources[:i], item):
			case item.err != nil:
				return nil, &invalidError{item}
			case item.selector.Matches(pod):
				out = append(out, item)
			}
		}
	}
	slices.SortFunc(out, func(a, b *preset) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// has reports whether a source has a preset with the namespace and the name of item.
func (p *presets) has(sources []cache.SharedIndexInformer, item *preset) bool {
	return slices.ContainsFunc(sources, func(s cache.SharedIndexInformer) bool {
		_, ok, err := s.GetStore().GetByKey(cache.NewObjectName(item.Namespace, item.Name).String())
		return ok && err == nil
	})
}
