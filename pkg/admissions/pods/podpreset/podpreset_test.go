package podpreset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/edges"
	"github.com/postern-dev/postern/internal/proportion"
	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/internal/seed"
	"github.com/postern-dev/postern/pkg/admissions/pods/podpreset"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
)

func Test(t *testing.T) { admittest.Run(t, podpreset.Plugin) }

// plugin is the plugin in a cluster with presets.
type plugin struct {
	admit.Handler
	env *admittest.Environment
}

func newPlugin(tb testing.TB, presets ...string) *plugin {
	tb.Helper()
	c := &admittest.Case{}
	for _, p := range presets {
		c.Cluster = append(c.Cluster, []byte(p))
	}
	env, err := c.Environment()
	if err != nil {
		tb.Fatal(err)
	}
	d, err := env.Deps(podpreset.Plugin, nil)
	if err != nil {
		tb.Fatal(err)
	}
	p := &plugin{env: env}
	if p.Handler, err = podpreset.Plugin.New(d, nil); err != nil {
		tb.Fatal(err)
	}
	return p
}

func (p *plugin) sync(tb testing.TB) *plugin {
	tb.Helper()
	p.env.CustomInformers.Start(tb.Context().Done())
	for gvr, ok := range p.env.CustomInformers.WaitForCacheSync(tb.Context().Done()) {
		if !ok {
			tb.Fatalf("%v did not sync", gvr)
		}
	}
	return p
}

// record runs the background work of the plugin until the test ends.
func (p *plugin) record(t *testing.T) {
	t.Helper()
	for _, f := range p.env.Background {
		go f(t.Context())
	}
	// The recorder drops what it gets before it has started.
	time.Sleep(100 * time.Millisecond)
}

// preset returns a preset of the namespace ns that selects all pods.
func preset(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"settings.postern.dev/v1alpha1","kind":"PodPreset","metadata":{"name":%q,"namespace":"ns","uid":"u","resourceVersion":"1"},"spec":%s}`, name, spec)
}

// repeated returns the content of a list that has an item n times.
func repeated(item string, n int) string { return item + strings.Repeat(","+item, n-1) }

func creation(pod *corev1.Pod) *admit.Request {
	pod.Namespace = "ns"
	return &admit.Request{
		AdmissionRequest: &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "ns", Name: pod.Name, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		},
		Object: pod,
	}
}

// podWith returns a pod with one container.
func podWith(c corev1.Container) *corev1.Pod {
	c.Name = "c"
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
}

const port = `{"env":[{"name":"PORT","value":"1"}]}`

func conflicting() *corev1.Pod {
	return podWith(corev1.Container{Env: []corev1.EnvVar{{Name: "PORT", Value: "secret"}}})
}

// TestAnUnsyncedCacheIsAFailure sends a request before the presets are known. A failure is no denial, so that the failure
// policy applies.
func TestAnUnsyncedCacheIsAFailure(t *testing.T) {
	p := newPlugin(t, preset("a", port))
	pod := podWith(corev1.Container{})
	if err := p.Mutate(t.Context(), creation(pod)); err == nil || admit.IsDenial(err) {
		t.Errorf("Got %v, want an error that is no denial", err)
	}
	if err := p.sync(t).Mutate(t.Context(), creation(pod)); err != nil || len(pod.Spec.Containers[0].Env) != 1 {
		t.Errorf("Got %v and %v after the presets are known", err, pod.Spec.Containers[0].Env)
	}
}

// TestTheCacheIsNotShared changes a pod after the presets were applied, as later plugins do.
func TestTheCacheIsNotShared(t *testing.T) {
	p := newPlugin(t, preset("a", `{"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
		"envFrom":[{"secretRef":{"name":"s"}}],"volumes":[{"name":"v","image":{"reference":"x"}}],
		"volumeMounts":[{"name":"v","mountPath":"/v","mountPropagation":"None"}]}`)).sync(t)
	first := podWith(corev1.Container{})
	if err := p.Mutate(t.Context(), creation(first)); err != nil {
		t.Fatal(err)
	}
	want := first.DeepCopy()
	c := &first.Spec.Containers[0]
	c.Env[0].ValueFrom.FieldRef.FieldPath, c.EnvFrom[0].SecretRef.Name = "changed", "changed"
	first.Spec.Volumes[0].Image.PullPolicy, *c.VolumeMounts[0].MountPropagation = corev1.PullAlways, "changed"
	second := podWith(corev1.Container{})
	if err := p.Mutate(t.Context(), creation(second)); err != nil || !apiequality.Semantic.DeepEqual(second, want) {
		t.Errorf("Got %v and another pod than before (- want, + got):\n%s", err, cmp.Diff(want, second))
	}
}

// TestAConflictLeavesNoTrace has the last of several containers conflict.
func TestAConflictLeavesNoTrace(t *testing.T) {
	p := newPlugin(t, preset("a", `{"env":[{"name":"PORT","value":"1"}],"volumes":[{"name":"v"}],"volumeMounts":[{"name":"v","mountPath":"/v"}]}`)).sync(t)
	pod := conflicting()
	pod.Spec.Containers = append([]corev1.Container{{Name: "a", Env: make([]corev1.EnvVar, 0, 8)}}, pod.Spec.Containers...)
	r := creation(pod)
	before := pod.DeepCopy()
	if err := p.Mutate(t.Context(), r); err != nil || !apiequality.Semantic.DeepEqual(pod, before) {
		t.Errorf("Got %v and a changed pod (- before, + after):\n%s", err, cmp.Diff(before, pod))
	}
}

// TestAnImageThatIsAlwaysPulledIsNoConflict calls the plugin again after AlwaysPullImages.
func TestAnImageThatIsAlwaysPulledIsNoConflict(t *testing.T) {
	p := newPlugin(t, preset("a", `{"volumes":[{"name":"v","image":{"reference":"x:1","pullPolicy":"Never"}}]}`)).sync(t)
	for policy, conflicts := range map[corev1.PullPolicy]bool{corev1.PullAlways: false, corev1.PullIfNotPresent: true} {
		pod := podWith(corev1.Container{})
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "x:1", PullPolicy: policy}}}}
		if err := p.Mutate(t.Context(), creation(pod)); err != nil || (len(pod.Annotations) == 0) != conflicts {
			t.Errorf("Got %v and the annotations %v for the policy %s", err, pod.Annotations, policy)
		}
	}
}

// TestPresetsCannotExhaustTheMemory has a small pod that would get gigabytes.
func TestPresetsCannotExhaustTheMemory(t *testing.T) {
	var env []string
	for i := range 40_000 {
		env = append(env, fmt.Sprintf(`{"name":"V%d","value":"0123456789"}`, i))
	}
	p := newPlugin(t, preset("a", `{"env":[`+strings.Join(env, ",")+`]}`)).sync(t)
	pod := podWith(corev1.Container{})
	if err := p.Mutate(t.Context(), creation(pod)); err != nil || len(pod.Spec.Containers[0].Env) != 40_000 {
		t.Errorf("Got %v and %d variables for one container", err, len(pod.Spec.Containers[0].Env))
	}
	pod = podWith(corev1.Container{})
	for i := range 10_000 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint(i)})
	}
	err := p.Mutate(t.Context(), creation(pod))
	if want := `pods "web" is forbidden: the PodPresets add more than 1572864 bytes to the pod`; !admit.IsDenial(err) || err.Error() != want {
		t.Errorf("Got %v, want a denial: %s", err, want)
	}
	if pod.Spec.Containers[0].Env != nil {
		t.Error("The pod was changed")
	}
}

// TestAnnotationsAreBounded has pods that would get annotations of presets that add nothing else, as many as an API server accepts
// and one byte more.
func TestAnnotationsAreBounded(t *testing.T) {
	const enough = 2_500
	var presets []string
	size := 0
	for i := range enough {
		name := fmt.Sprintf("%050d", i)
		presets = append(presets, preset(name, "{}"))
		size += len("podpreset.admission.kubernetes.io/podpreset-") + len(name) + len("1")
	}
	p := newPlugin(t, presets...).sync(t)
	for more, denied := range map[int]bool{0: false, 1: true} {
		pod := podWith(corev1.Container{})
		pod.Annotations = map[string]string{"own": strings.Repeat("a", 256<<10-size-len("own")+more)}
		want := enough + 1
		if denied {
			want = 1
		}
		if err := p.Mutate(t.Context(), creation(pod)); admit.IsDenial(err) != denied || err != nil && !denied || len(pod.Annotations) != want {
			t.Errorf("%d bytes more than an API server accepts: got %v and %d annotations, want %d", more, err, len(pod.Annotations), want)
		}
		if denied {
			continue
		}
		// When it is called again, it replaces the annotations.
		if err := p.Mutate(t.Context(), creation(pod)); err != nil || len(pod.Annotations) != want {
			t.Errorf("Got %v and %d annotations when it was called again, want %d", err, len(pod.Annotations), want)
		}
	}
}

// TestOtherAnnotationsAreLeftToTheAPIServer has a pod with too many annotations that no preset selects.
func TestOtherAnnotationsAreLeftToTheAPIServer(t *testing.T) {
	pod := podWith(corev1.Container{})
	pod.Annotations = map[string]string{"own": strings.Repeat("a", 256<<10)}
	if err := newPlugin(t).sync(t).Mutate(t.Context(), creation(pod)); err != nil {
		t.Errorf("Got %v, want that the plugin has nothing to say", err)
	}
}

// TestWithoutMemoryThePodIsUnchanged has no memory for what the presets add, or for what the plugin needs for a moment to add it.
func TestWithoutMemoryThePodIsUnchanged(t *testing.T) {
	p := newPlugin(t, preset("a", `{"env":[`+repeated(`{"name":"PORT","value":"1"}`, 1_000)+`]}`)).sync(t)
	for had, want := range []error{reads.ErrHeld, reads.ErrHeld, nil} {
		a := &purse{left: 1 << 30, needs: had}
		pod := podWith(corev1.Container{})
		err := p.Mutate(reads.NewContext(t.Context(), a), creation(pod))
		if !errors.Is(err, want) || len(pod.Annotations) > 0 != (want == nil) || len(pod.Spec.Containers[0].Env) > 0 != (want == nil) {
			t.Errorf("With memory %d times: got %v, %d variables and the annotations %v", had, err, len(pod.Spec.Containers[0].Env), pod.Annotations)
		}
		if a.open > 0 {
			t.Errorf("With memory %d times: what was needed for a moment is held when the plugin has ended", had)
		}
	}
}

// TestManyPresets has a pod that all of 2,000 presets select, and a namespace with 10,000 presets that do not.
func TestManyPresets(t *testing.T) {
	var presets []string
	for i := range 12_000 {
		selector := `{"matchLabels":{"other":"yes"}}`
		if i < 2_000 {
			selector = "{}"
		}
		presets = append(presets, preset(fmt.Sprintf("p%05d", 11_999-i), fmt.Sprintf(`{"selector":%s,"env":[{"name":"V%05d","value":"1"}]}`, selector, 11_999-i)))
	}
	p := newPlugin(t, presets...).sync(t)
	pod := podWith(corev1.Container{})
	if err := p.Mutate(t.Context(), creation(pod)); err != nil {
		t.Fatal(err)
	}
	env := pod.Spec.Containers[0].Env
	if len(env) != 2_000 || len(pod.Annotations) != 2_000 || !slices.IsSortedFunc(env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("Got %d variables and %d annotations, want 2000 in the order of the presets", len(env), len(pod.Annotations))
	}
}

// TestBrokenPresets has what an API server without a schema may store. Such a preset denies the pods of its namespace, or
// adds what the API server refuses. It causes no panic.
func TestBrokenPresets(t *testing.T) {
	for spec, denied := range map[string]bool{
		`null`: false, `{"selector":null,"env":null,"envFrom":null,"volumes":null,"volumeMounts":null}`: false,
		`"text"`: true, `[]`: true, `{"selector":"text"}`: true, `{"env":{}}`: true, `{"env":["text"]}`: true, `{"volumes":[[]]}`: true,
		`{"selector":{"matchExpressions":[null]}}`: true, `{"selector":{"matchExpressions":[{"key":"a","operator":"Like"}]}}`: true,
		`{"selector":{"matchLabels":{"a b":"c"}}}`: true, `{"selector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`: true,
		`{"env":[null],"envFrom":[null],"volumes":[null],"volumeMounts":[null]}`:                false,
		`{"env":[{"name":"A","valueFrom":{}}],"volumes":[{"name":"v","projected":{}}]}`:         false,
		`{"volumes":[{"name":"v","ephemeral":{}},{"name":"w","downwardAPI":{"items":[null]}}]}`: false,
		`{"volumes":[{"name":"v","projected":{"sources":[null]}}]}`:                             false,
	} {
		t.Run(spec, func(t *testing.T) {
			p := newPlugin(t, preset("a", spec)).sync(t)
			pod := podWith(corev1.Container{})
			for range 2 { // The second call compares the items.
				if err := p.Mutate(t.Context(), creation(pod)); admit.IsDenial(err) != denied || err != nil && !denied {
					t.Errorf("Got %v, want a denial: %t", err, denied)
				}
			}
		})
	}
}

// ending is a context that ends after some looks at it.
type ending struct {
	context.Context //nolint:containedctx // It is a context itself.
	looks           int
}

func (e *ending) Err() error {
	if e.looks--; e.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// TestTheDeadlineEndsTheWork ends the context of a request at every look at it: for each preset, and for each container.
func TestTheDeadlineEndsTheWork(t *testing.T) {
	p := newPlugin(t, preset("a", port), preset("b", "{}"), preset("c", port)).sync(t)
	const looks = 3 + 4*3 + 5
	for n := range looks + 1 {
		pod := podWith(corev1.Container{})
		pod.Spec.Containers = slices.Repeat(pod.Spec.Containers, 5)
		err := p.Mutate(&ending{t.Context(), n}, creation(pod))
		if ended := errors.Is(err, context.DeadlineExceeded); ended != (n < looks) || admit.IsDenial(err) {
			t.Errorf("Got %v after %d looks at the context", err, n)
		}
	}
}

// TestRepeatedSources has presets with equal sources between others. A container gets all of them in the order of the presets,
// or, of those that it has, none.
func TestRepeatedSources(t *testing.T) {
	source := func(names ...string) string {
		var list []string
		for _, name := range names {
			list = append(list, `{"secretRef":{"name":"`+name+`"}}`)
		}
		return `{"envFrom":[` + strings.Join(list, ",") + `]}`
	}
	p := newPlugin(t, preset("p1", source("a", "b")), preset("p2", source("c", "a")), preset("p3", source("a", "b", "a"))).sync(t)
	for has, want := range map[string]string{"": "abcaaba", "b": "bacaaa", "ca": "cabb", "x": "xabcaaba"} {
		c := corev1.Container{}
		for _, name := range has {
			c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: string(name)}}})
		}
		pod := podWith(c)
		if err := p.Mutate(t.Context(), creation(pod)); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range pod.Spec.Containers[0].EnvFrom {
			got += e.SecretRef.Name
		}
		if got != want {
			t.Errorf("A container with %q: got %q, want %q", has, got, want)
		}
	}
}

// TestRepeatedItemsAreComparedOnce has presets that add nothing to any container, because the containers have it. Most of
// the presets have what an earlier one has, so they must cost next to nothing for each container. There are so
// many containers that reading the presets, which happens once, is the smaller part of the work.
func TestRepeatedItemsAreComparedOnce(t *testing.T) {
	for name, spec := range map[string]string{"env": port, "mount": `{"volumeMounts":[{"name":"v","mountPath":"/v"}]}`, "source": `{"envFrom":[{"secretRef":{"name":"s"}}` + strings.Repeat(`,{"secretRef":{"name":"s"}}`, 19) + `]}`} {
		mutate := func(presets int) func() {
			all := make([]string, presets)
			for i := range all {
				all[i] = preset(fmt.Sprint("p", i), spec)
			}
			p, pod := newPlugin(t, all...).sync(t), podWith(corev1.Container{
				Env: []corev1.EnvVar{{Name: "PORT", Value: "1"}}, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}},
			})
			pod.Spec.Containers = slices.Repeat(pod.Spec.Containers, 5_000)
			return func() {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				if err := p.Mutate(ctx, creation(pod.DeepCopy())); err != nil {
					t.Fatal(err)
				}
			}
		}
		proportion.Check(t, name+" of presets", 4, mutate(640), 4, mutate(10))
	}
}

// TestRepeatedItemsCountOnce has presets with the same large item, which is added once, or which the container has.
func TestRepeatedItemsCountOnce(t *testing.T) {
	const presets = 1_000
	long := strings.Repeat("a", 4_000)
	source := corev1.EnvFromSource{Prefix: long, SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}
	for name, spec := range map[string]string{
		"volume": `{"volumes":[{"name":"v","configMap":{"name":"c","items":[{"key":"` + long + `","path":"p"}]}}]}`,
		"env":    `{"env":[{"name":"PORT","value":"` + long + `"}]}`,
		"mount":  `{"volumeMounts":[{"name":"v","mountPath":"/` + long + `"}]}`,
		"source": `{"envFrom":[{"prefix":"` + long + `","secretRef":{"name":"s"}}]}`,
	} {
		all := make([]string, presets)
		for i := range all {
			all[i] = preset(fmt.Sprint("p", i), spec)
		}
		pod := podWith(corev1.Container{EnvFrom: []corev1.EnvFromSource{source}})
		err := newPlugin(t, all...).sync(t).Mutate(t.Context(), creation(pod))
		c := pod.Spec.Containers[0]
		if err != nil || len(pod.Annotations) != presets || len(pod.Spec.Volumes) > 1 || len(c.Env) > 1 || len(c.VolumeMounts) > 1 || len(c.EnvFrom) != 1 {
			t.Errorf("%s: got %v, %d annotations, %d volumes, %d variables, %d mounts and %d sources", name, err, len(pod.Annotations),
				len(pod.Spec.Volumes), len(c.Env), len(c.VolumeMounts), len(c.EnvFrom))
		}
	}
}

// TestItemsThatDifferAreBounded has presets with more than any pod can have, which are denied before they are compared with the pod.
// With less, the pod conflicts.
func TestItemsThatDifferAreBounded(t *testing.T) {
	for presets, denied := range map[int]bool{500: false, 1_000: true} {
		all := []string{preset("a", port)}
		for i := range presets {
			all = append(all, preset(fmt.Sprint("p", i), fmt.Sprintf(`{"env":[{"name":"V%d","value":"%s"}]}`, i, strings.Repeat("a", 4_000))))
		}
		if err := newPlugin(t, all...).sync(t).Mutate(t.Context(), creation(conflicting())); admit.IsDenial(err) != denied || err != nil && !denied {
			t.Errorf("%d presets: got %v, want a denial: %t", presets, err, denied)
		}
	}
}

// TestLongQuantitiesAreInvalid has a quantity that takes long to format, and more memory than its canonical form.
func TestLongQuantitiesAreInvalid(t *testing.T) {
	for quantity, denied := range map[string]bool{
		"-1" + strings.Repeat("0", 98): false, "-1" + strings.Repeat("0", 99): true, "99999999999999999999e100": false, "99999999999999999999e1000": true,
	} {
		p := newPlugin(t, preset("a", `{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"`+quantity+`"}}]}`)).sync(t)
		if err := p.Mutate(t.Context(), creation(podWith(corev1.Container{}))); admit.IsDenial(err) != denied || err != nil && !denied {
			t.Errorf("%s: got %v, want a denial: %t", quantity, err, denied)
		}
	}
}

// TestLargeSelectorsAreInvalid has a selector with as many values as allowed, and one with one more.
func TestLargeSelectorsAreInvalid(t *testing.T) {
	for values, valid := range map[int]bool{999: true, 1000: false} {
		text := preset("a", `{"selector":{"matchExpressions":[{"key":"k","operator":"In","values":["v"`+strings.Repeat(`,"v"`, values-1)+`]}]}}`)
		p := newPlugin(t, text).sync(t)
		if err := p.Mutate(t.Context(), creation(podWith(corev1.Container{}))); admit.IsDenial(err) == valid {
			t.Errorf("%d values: got %v for a pod, want a denial: %t", values, err, !valid)
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := p.Validate(t.Context(), &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{}, Object: u}); admit.IsDenial(err) == valid {
			t.Errorf("%d values: got %v for the preset, want a denial: %t", values, err, !valid)
		}
	}
}

// TestLargePresets has presets that are too large for the cache, which omits what they add.
func TestLargePresets(t *testing.T) {
	sources := `{"volumes":[{"name":"v","projected":{"sources":[` + repeated("{}", 3_000) + `]}}],"selector":%s}`
	gvr := settingsv1alpha1.GroupVersionResource()
	for name, test := range map[string]struct {
		selector string
		// changed is the selector that the API server has when the pod is created, or "deleted".
		changed string
		broken  bool
		volumes int
		reads   int
	}{
		"selects":          {"{}", "", false, 1, 1},
		"does not select":  {`{"matchLabels":{"other":"yes"}}`, "", false, 0, 0},
		"no longer does":   {"{}", `{"matchLabels":{"other":"yes"}}`, false, 0, 1},
		"was deleted":      {"{}", "deleted", false, 0, 1},
		"became invalid":   {"{}", `{"matchLabels":{"a b":"c"}}`, false, 0, 1},
		"cannot be read":   {"{}", "", true, 0, 1},
		"cannot, no match": {`{"matchLabels":{"other":"yes"}}`, "", true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, preset("a", fmt.Sprintf(sources, test.selector))).sync(t)
			reads := 0
			p.env.Dynamic.PrependReactor("get", gvr.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				reads++
				switch {
				case test.broken:
					return true, nil, errors.New("away")
				case test.changed == "deleted":
					return true, nil, apierrors.NewNotFound(gvr.GroupResource(), "a")
				case test.changed != "":
					u := &unstructured.Unstructured{}
					return true, u, u.UnmarshalJSON([]byte(preset("a", fmt.Sprintf(sources, test.changed))))
				}
				return false, nil, nil
			})
			pod := podWith(corev1.Container{})
			err := p.Mutate(t.Context(), creation(pod))
			switch {
			case name == "became invalid":
				if !admit.IsDenial(err) {
					t.Errorf("Got %v, want a denial", err)
				}
			case name == "cannot be read":
				if err == nil || admit.IsDenial(err) {
					t.Errorf("Got %v, want an error that is no denial", err)
				}
			case err != nil:
				t.Error(err)
			}
			if len(pod.Spec.Volumes) != test.volumes || reads != test.reads {
				t.Errorf("Got %d volumes after %d reads, want %d and %d", len(pod.Spec.Volumes), reads, test.volumes, test.reads)
			}
			if test.volumes > 0 && len(pod.Spec.Volumes[0].Projected.Sources) != 3_000 {
				t.Errorf("Got a volume with %d sources", len(pod.Spec.Volumes[0].Projected.Sources))
			}
		})
	}
}

// purse is an account with little memory.
type purse struct {
	reads.Detached

	left int64
	// needs is how often Need has memory, and open how many accounts have not ended.
	needs, open int
}

func (p *purse) Need(context.Context, int64) error {
	if p.needs--; p.needs < 0 {
		return reads.ErrHeld
	}
	return nil
}

func (p *purse) Open() (reads.Account, func()) {
	p.open++
	return p, sync.OnceFunc(func() { p.open-- })
}

func (p *purse) Fits(n int64) bool { return n <= p.left }

func (p *purse) Hold(_ context.Context, n int64) error {
	p.left -= n
	return nil
}

// TestLargePresetsCannotExhaustTheMemory has a pod that several large presets select. Two of them fit.
func TestLargePresetsCannotExhaustTheMemory(t *testing.T) {
	spec := `{"volumes":[{"name":"v%d","projected":{"sources":[` + repeated("{}", 3_000) + `]}}]}`
	for presets, denied := range map[int]bool{2: false, 3: true, 16: true} {
		var all []string
		for i := range presets {
			all = append(all, preset(fmt.Sprint("p", i), fmt.Sprintf(spec, i)))
		}
		p := newPlugin(t, all...).sync(t)
		got := 0
		p.env.Dynamic.PrependReactor("get", "podpresets", func(clienttesting.Action) (bool, runtime.Object, error) {
			got++
			return false, nil, nil
		})
		// A preset takes 3,000 times 48 bytes, and half as much again.
		account := &purse{left: 500_000, needs: 2, Detached: func() (reads.Account, func()) { return &purse{left: 1 << 40}, func() {} }}
		pod := podWith(corev1.Container{})
		err := p.Mutate(reads.NewContext(t.Context(), account), creation(pod))
		if admit.IsDenial(err) != denied || !denied && err != nil || got != min(presets, 3) {
			t.Errorf("%d presets: got %v after %d reads, want a denial: %t", presets, err, got, denied)
		}
		if want := presets; !denied && len(pod.Spec.Volumes) != want || denied && len(pod.Spec.Volumes) != 0 {
			t.Errorf("%d presets: got %d volumes", presets, len(pod.Spec.Volumes))
		}
	}
}

// TestLargePresetsAreBounded has as many presets for a pod as the plugin reads, and one more.
func TestLargePresetsAreBounded(t *testing.T) {
	spec := `{"selector":%s,"env":[` + repeated(`{"name":"PORT","value":"1"}`, 1_000) + `]}`
	for presets, denied := range map[int]bool{16: false, 17: true} {
		all := []string{preset("other", fmt.Sprintf(spec, `{"matchLabels":{"other":"yes"}}`)), preset("small", port)}
		for i := range presets {
			all = append(all, preset(fmt.Sprint("p", i), fmt.Sprintf(spec, "{}")))
		}
		p := newPlugin(t, all...).sync(t)
		p.env.Dynamic.ClearActions()
		pod := podWith(corev1.Container{})
		err := p.Mutate(t.Context(), creation(pod))
		got, want := len(p.env.Dynamic.Actions()), presets
		if denied {
			want = 0
		}
		if admit.IsDenial(err) != denied || err != nil && !denied || got != want || (len(pod.Spec.Containers[0].Env) == 0) != denied {
			t.Errorf("%d large presets: got %v after %d reads, want %d, and %d variables", presets, err, got, want, len(pod.Spec.Containers[0].Env))
		}
	}
}

// edge is a preset of which each field can be changed.
const edge = `
apiVersion: settings.postern.dev/v1alpha1
kind: PodPreset
metadata: {name: edge, namespace: ns}
spec:
  selector: {matchLabels: {app: web}, matchExpressions: [{key: app, operator: In, values: [web]}]}
  env:
  - {name: A, value: a}
  - {name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1"}}}
  - {name: C, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}
  envFrom: [{prefix: P_, secretRef: {name: s, optional: true}}, {configMapRef: {name: c}}]
  volumes:
  - {name: a, configMap: {name: c, items: [{key: k, path: p, mode: 256}]}}
  - {name: b, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
  - {name: c, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
  - {name: d, projected: {sources: [{serviceAccountToken: {path: t, audience: a, expirationSeconds: 600}}, {secret: {name: s}}]}}
  - {name: e, downwardAPI: {items: [{path: p, resourceFieldRef: {resource: limits.cpu, divisor: 1m}}]}}
  - {name: f, image: {reference: r, pullPolicy: Always}}
  volumeMounts: [{name: a, mountPath: /a, readOnly: true, subPath: b}, {name: b, mountPath: /b, subPathExpr: $(A)}]
`

// TestPresetsAtTheEdge has a hundred of the presets of TestAllPresetsAtTheEdge.
func TestPresetsAtTheEdge(t *testing.T) { checkEdges(t, 100) }

// TestAllPresetsAtTheEdge has presets with what is hardest to decode or to measure in one field.
func TestAllPresetsAtTheEdge(t *testing.T) {
	ring.Second(t, "some thousand presets")
	checkEdges(t, 10_000)
}

// checkEdges has some presets at the edge of what a client can send, and creates a pod twice with each of them. The plugin decides
// in any case, and denies pods for a preset that it cannot evaluate if it refuses the preset.
func checkEdges(t *testing.T, n int) {
	t.Helper()
	example := &settingsv1alpha1.PodPreset{}
	if err := yaml.UnmarshalStrict([]byte(edge), example); err != nil {
		t.Fatal(err)
	}
	// Each preset has its own namespace.
	var presets []*unstructured.Unstructured
	var changes []edges.Change
	var texts []string
	for i, change := range edges.Some(example, seed.Chance(t), n) {
		object, ok := change.Make(example).(*settingsv1alpha1.PodPreset)
		if !ok {
			t.Fatalf("%s: another type", change)
		}
		object.Name, object.Namespace = "edge", fmt.Sprint("ns", i)
		u := &unstructured.Unstructured{}
		text, err := json.Marshal(object)
		if err != nil || u.UnmarshalJSON(text) != nil {
			continue // A client cannot send it, or the API server does not decode it.
		}
		presets, changes, texts = append(presets, u), append(changes, change), append(texts, string(text))
	}
	p := newPlugin(t, texts...).sync(t)
	outcomes := map[string]int{}
	for i, u := range presets {
		refused := p.Validate(t.Context(), &admit.Request{AdmissionRequest: &admissionv1.AdmissionRequest{}, Object: u})
		if refused != nil && !admit.IsDenial(refused) {
			t.Errorf("%s: got %v for the preset", changes[i], refused)
		}
		pod := podWith(corev1.Container{Env: []corev1.EnvVar{{Name: "X"}}})
		pod.Labels = map[string]string{"app": "web"}
		for range 2 {
			r := creation(pod)
			r.Namespace = u.GetNamespace()
			err := p.Mutate(t.Context(), r)
			invalid := err != nil && strings.Contains(err.Error(), "filtering pod presets failed")
			if err != nil && !admit.IsDenial(err) || invalid != (refused != nil) {
				t.Errorf("%s: got %v for a pod, and %v for the preset", changes[i], err, refused)
			}
			outcomes[fmt.Sprintf("invalid: %t, denied: %t, applied: %t", invalid, err != nil, len(pod.Annotations) > 0)]++
		}
	}
	t.Logf("Two pods for each of %d presets: %v", len(presets), outcomes)
	if outcomes["invalid: false, denied: false, applied: true"] < len(presets) {
		t.Error("Less than half of the presets were applied. The others reach a part of the plugin only")
	}
}

// TestAPresetThatGrewIsBounded has a preset that the API server has in a much larger version than the cache.
func TestAPresetThatGrewIsBounded(t *testing.T) {
	sources := func(n int) string {
		return preset("a", `{"volumes":[{"name":"v","projected":{"sources":[`+repeated("{}", n)+`]}}]}`)
	}
	for n, denied := range map[int]bool{90_000: false, 200_000: true} {
		p := newPlugin(t, sources(1_000)).sync(t)
		p.env.Dynamic.PrependReactor("get", "podpresets", func(clienttesting.Action) (bool, runtime.Object, error) {
			u := &unstructured.Unstructured{}
			return true, u, u.UnmarshalJSON([]byte(sources(n)))
		})
		if err := p.Mutate(t.Context(), creation(podWith(corev1.Container{}))); admit.IsDenial(err) != denied || err != nil && !denied {
			t.Errorf("%d sources: got %v, want a denial: %t", n, err, denied)
		}
	}
}

// TestNothingIsReadForAnInvalidPreset has an invalid preset after a large one.
func TestNothingIsReadForAnInvalidPreset(t *testing.T) {
	large := `{"env":[` + repeated(`{"name":"PORT","value":"1"}`, 1_000) + `]}`
	p := newPlugin(t, preset("a", large), preset("b", `{"selector":{"matchLabels":{"a b":"c"}}}`)).sync(t)
	p.env.Dynamic.ClearActions()
	err := p.Mutate(t.Context(), creation(podWith(corev1.Container{})))
	if !admit.IsDenial(err) || !strings.Contains(err.Error(), `PodPreset "b": label selector conversion failed`) || len(p.env.Dynamic.Actions()) > 0 {
		t.Errorf("Got %v after %d reads, want a denial after none", err, len(p.env.Dynamic.Actions()))
	}
}

// TestTheMemoryOfLargePresetsIsBounded has presets of 4 MB each, of which the plugin reads one at most. A projected source takes
// 48 bytes.
func TestTheMemoryOfLargePresetsIsBounded(t *testing.T) {
	spec := `{"volumes":[{"name":"v%d","projected":{"sources":[` + repeated("{}", 90_000) + `]}}]}`
	for presets, denied := range map[int]bool{1: false, 2: true} {
		var all []string
		for i := range presets {
			all = append(all, preset(fmt.Sprint("p", i), fmt.Sprintf(spec, i)))
		}
		p := newPlugin(t, all...).sync(t)
		p.env.Dynamic.ClearActions()
		err := p.Mutate(t.Context(), creation(podWith(corev1.Container{})))
		if got := len(p.env.Dynamic.Actions()); admit.IsDenial(err) != denied || err != nil && !denied || (got == 0) != denied {
			t.Errorf("%d presets: got %v after %d reads, want a denial: %t", presets, err, got, denied)
		}
	}
}

// TestConflictsAreEvents causes conflicts in two namespaces, of which one causes too many.
func TestConflictsAreEvents(t *testing.T) {
	other := strings.Replace(preset("quiet", port), `"namespace":"ns"`, `"namespace":"other"`, 1)
	p := newPlugin(t, preset("a", port), other).sync(t)
	p.record(t)
	for i := range 200 {
		pod := conflicting()
		pod.Name = fmt.Sprint("web-", i%5)
		if err := p.Mutate(t.Context(), creation(pod)); err != nil {
			t.Fatal(err)
		}
		dry := creation(conflicting())
		dry.DryRun = new(true)
		dry.Namespace = "dry"
		if err := p.Mutate(t.Context(), dry); err != nil {
			t.Fatal(err)
		}
	}
	last := creation(conflicting())
	last.Namespace = "other"
	if err := p.Mutate(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	// The Events are written in order.
	for end := time.Now().Add(30 * time.Second); !p.wrote("other"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("There is no Event for the preset of the other namespace")
		}
	}
	calls := map[string]int{}
	for _, a := range p.env.Client.Actions() {
		if a.GetResource().Resource == "events" {
			calls[a.GetNamespace()+" "+a.GetVerb()]++
		}
	}
	// Equal Events are counted in one, and after 25 there are no more.
	want := map[string]int{"ns create": 5, "ns patch": 20, "other create": 1}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("The calls differ (- want, + got):\n%s", diff)
	}
	list, err := p.env.Client.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("Got %v and %d Events", err, len(list.Items))
	}
	e := list.Items[0]
	about := corev1.ObjectReference{APIVersion: "settings.postern.dev/v1alpha1", Kind: "PodPreset", Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "1"}
	if e.InvolvedObject != about || e.Reason != "Conflict" || e.Type != corev1.EventTypeWarning ||
		!strings.HasPrefix(e.Message, `No PodPreset was applied to pod "web-`) || !strings.HasSuffix(e.Message, `: conflict on env "PORT" of container "c"`) {
		t.Errorf("Got the Event %+v", e)
	}
}

// wrote reports whether there is an Event in a namespace.
func (p *plugin) wrote(namespace string) bool {
	for _, a := range p.env.Client.Actions() {
		if a.GetResource().Resource == "events" && a.GetNamespace() == namespace {
			return true
		}
	}
	return false
}

// BenchmarkMutate has a namespace with 1,000 presets, of which ten select the pod.
func BenchmarkMutate(b *testing.B) {
	var presets []string
	for i := range 1_000 {
		presets = append(presets, preset(fmt.Sprint("p", i), fmt.Sprintf(`{"selector":{"matchLabels":{"team":"t%d"},"matchExpressions":[{"key":"stage","operator":"In","values":["a","b"]}]},
			"env":[{"name":"V%d","value":"1"}],"volumes":[{"name":"v%d","secret":{"secretName":"s"}}],"volumeMounts":[{"name":"v%d","mountPath":"/v%d"}]}`, i%100, i, i, i, i)))
	}
	p := newPlugin(b, presets...).sync(b)
	b.ReportAllocs()
	for b.Loop() {
		pod := podWith(corev1.Container{})
		pod.Labels = map[string]string{"team": "t7", "stage": "b"}
		if err := p.Mutate(b.Context(), creation(pod)); err != nil || len(pod.Spec.Volumes) != 10 {
			b.Fatalf("Got %v and %d volumes", err, len(pod.Spec.Volumes))
		}
	}
}
