package podresources_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/postern-dev/postern/internal/kinds/podresources"
	"github.com/postern-dev/postern/internal/proportion"
	"github.com/postern-dev/postern/internal/seed"
)

// TestLibrary compares the results with those of k8s.io/component-helpers, for random pods.
func TestLibrary(t *testing.T) {
	g := generator{seed.Chance(t)}
	for range 3_000 {
		pod := g.pod()
		for _, o := range []podresources.Options{{}, {Status: true}, {PodLevel: true}, {Status: true, PodLevel: true}} {
			before := pod.DeepCopy()
			got := [2]corev1.ResourceList{podresources.Requests(pod, o), podresources.Limits(pod, o)}
			if !apiequality.Semantic.DeepEqual(before, pod) {
				t.Fatalf("The pod was changed from %s to %s", before, pod)
			}
			opts := resourcehelper.PodResourcesOptions{UseStatusResources: o.Status, SkipPodLevelResources: !o.PodLevel}
			want := [2]corev1.ResourceList{resourcehelper.PodRequests(pod.DeepCopy(), opts), resourcehelper.PodLimits(pod.DeepCopy(), opts)}
			if !apiequality.Semantic.DeepEqual(texts(want), texts(got)) {
				t.Fatalf("%+v: got %v, want %v for %s", o, texts(got), texts(want), pod)
			}
		}
	}
}

// texts returns the quantities as users see them: 1024k and 1000Ki are equal, but not the same text.
func texts(lists [2]corev1.ResourceList) (out [2]map[corev1.ResourceName]string) {
	for i, list := range lists {
		out[i] = map[corev1.ResourceName]string{}
		for name, q := range list {
			out[i][name] = q.String()
		}
	}
	return out
}

// TestMany has sidecars, init containers and statuses with as many resources. The work must not be their product.
func TestMany(t *testing.T) {
	requests := func(n int) func() {
		all, names := corev1.ResourceList{}, func(i int) corev1.ResourceName { return corev1.ResourceName("example.com/" + strconv.Itoa(i)) }
		for i := range n {
			all[names(i)] = resource.MustParse("1")
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "first", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}}}
		pod.Spec.InitContainers[0].Resources.Requests = all
		for i := range n {
			c := corev1.Container{Name: strconv.Itoa(i), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{names(i): resource.MustParse("2")}}}
			if i%2 == 0 {
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: c.Name, AllocatedResources: c.Resources.Requests})
		}
		return func() {
			got := podresources.Requests(pod, podresources.Options{Status: true})
			for name, q := range got {
				if q.Value() != 3 {
					t.Fatalf("Got %v of %s, want 3", &q, name)
				}
			}
			if len(got) != n {
				t.Errorf("Got %d resources, want %d", len(got), n)
			}
		}
	}
	proportion.Check(t, "resources and init containers", 4, requests(8_000), 16, requests(500))
}

type generator struct{ *rand.Rand }

func (g generator) pod() *corev1.Pod {
	pod := &corev1.Pod{}
	for range g.IntN(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: g.name(), Resources: g.requirements()})
	}
	for range g.IntN(5) {
		c := corev1.Container{Name: g.name(), Resources: g.requirements()}
		if g.IntN(2) == 0 {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	if g.IntN(3) == 0 {
		pod.Spec.Resources = new(g.requirements())
	}
	pod.Spec.Overhead = g.list()
	if g.IntN(2) == 0 {
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = g.statuses(), g.statuses()
	}
	if g.IntN(4) == 0 {
		reason := []string{corev1.PodReasonInfeasible, corev1.PodReasonDeferred}[g.IntN(2)]
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: reason}}
	}
	return pod
}

// name returns one of few names, so that some containers and statuses have the same.
func (g generator) name() string { return strconv.Itoa(g.IntN(5)) }

func (g generator) statuses() (out []corev1.ContainerStatus) {
	for range g.IntN(4) {
		s := corev1.ContainerStatus{Name: g.name(), AllocatedResources: g.list()}
		if g.IntN(2) == 0 {
			s.Resources = new(g.requirements())
		}
		out = append(out, s)
	}
	return out
}

func (g generator) requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: g.list(), Limits: g.list()}
}

// list returns a list that may be nil. Templates of custom resources may have negative quantities.
func (g generator) list() corev1.ResourceList {
	if g.IntN(3) == 0 {
		return nil
	}
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{"cpu", "memory", "hugepages-2Mi", "example.com/gpu"} {
		if g.IntN(2) == 0 {
			texts := []string{"0", "1", "-2", "100m", "1024k", "1Mi", "2000Ki", "1e3", "0.1", "12345678901234567890123", "1.5Gi"}
			out[name] = resource.MustParse(texts[g.IntN(len(texts))])
		}
	}
	return out
}
