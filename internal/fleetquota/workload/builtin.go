package workload

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/typed"
)

// typedOf converts a cached object into its type of k8s.io/api.
func typedOf(kind *Kind, u *unstructured.Unstructured) (runtime.Object, error) {
	obj, err := scheme.Scheme.New(kind.GroupVersion().WithKind(kind.Kind))
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", kind.Kind, err)
	}
	if err := typed.From(u, obj); err != nil {
		return nil, fmt.Errorf("decoding a %s: %w", kind.Kind, err)
	}
	return obj, nil
}

// content describes the pods of an object.
type content struct {
	// parts are the pods of the object. run are the pods of objects that it creates and that are counted separately.
	// spare are the pods of a rolling update if they are not counted.
	parts, run, spare []part

	covers, fixed bool
}

// contentOf returns the content of an object of k8s.io/api.
func (k *Kinds) contentOf(obj runtime.Object) (content, error) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return k.deployment(o), nil
	case *appsv1.StatefulSet:
		return content{parts: []part{{orOne(o.Spec.Replicas), podOf(&o.Spec.Template)}}, covers: true}, nil
	case *appsv1.ReplicaSet:
		return content{parts: []part{{orOne(o.Spec.Replicas), podOf(&o.Spec.Template)}}, covers: true}, nil
	case *appsv1.DaemonSet:
		c := content{covers: true, fixed: true}
		if k.settings.DaemonSetNodes > 0 {
			c.parts = []part{{k.settings.DaemonSetNodes, podOf(&o.Spec.Template)}}
		}
		return c, nil
	case *batchv1.Job:
		if hasEnded(o) {
			return content{covers: true}, nil
		}
		return content{parts: jobParts(&o.Spec), covers: true}, nil
	case *batchv1.CronJob:
		one := jobParts(&o.Spec.JobTemplate.Spec)
		if o.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent || o.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent {
			if o.Spec.Suspend == nil || !*o.Spec.Suspend {
				return content{parts: one, covers: true}, nil
			}
		}
		return content{run: one}, nil
	case *corev1.Pod:
		return content{parts: []part{{1, o}}}, nil
	}
	return content{}, fmt.Errorf("a %T is no workload", obj)
}

func (k *Kinds) deployment(d *appsv1.Deployment) content {
	pods := orOne(d.Spec.Replicas)
	more := surge(d, pods)
	if k.settings.CountSurge {
		return content{parts: []part{{pods + more, podOf(&d.Spec.Template)}}, covers: true}
	}
	// A ReplicaSet never gets more pods than its Deployment has, whatever maxSurge is.
	return content{
		parts: []part{{pods, podOf(&d.Spec.Template)}}, spare: []part{{min(more, pods), podOf(&d.Spec.Template)}}, covers: true,
	}
}

// jobParts returns the pods of a Job that run at the same time.
func jobParts(spec *batchv1.JobSpec) []part {
	if spec.Suspend != nil && *spec.Suspend {
		return nil
	}
	pods := orOne(spec.Parallelism)
	if spec.Completions != nil {
		pods = min(pods, orOne(spec.Completions))
	}
	return []part{{pods, podOf(&spec.Template)}}
}

func hasEnded(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// surge returns the number of pods that a rolling update may add. The API server sets the default and rejects invalid
// values.
func surge(d *appsv1.Deployment, replicas int64) int64 {
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return 0
	}
	most := intstr.FromString("25%")
	if r := d.Spec.Strategy.RollingUpdate; r != nil && r.MaxSurge != nil {
		most = *r.MaxSurge
	}
	if most.Type == intstr.Int {
		return max(int64(most.IntVal), 0)
	}
	// A number with more digits gives the largest result.
	percents, err := strconv.ParseInt(strings.TrimSuffix(most.StrVal, "%"), 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return replicas
	}
	return min((max(percents, 0)*replicas+99)/100, maxReplicas)
}

// orOne returns a number whose default is 1.
func orOne(n *int32) int64 {
	if n == nil {
		return 1
	}
	return int64(*n)
}

func podOf(template *corev1.PodTemplateSpec) *corev1.Pod { return &corev1.Pod{Spec: template.Spec} }

// Typed returns an object of an API server in its type of k8s.io/api, or as it is if its kind has none.
func (k *Kind) Typed(u *unstructured.Unstructured) (runtime.Object, error) {
	if k.Custom != nil {
		return u, nil
	}
	return typedOf(k, u)
}

// Scaled returns an object with another number of replicas and resource version, as the subresource scale stores it. It shares
// all else with obj, which others must not change.
func (k *Kind) Scaled(obj runtime.Object, replicas int32, version string) (runtime.Object, error) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		scaled := *o
		scaled.ResourceVersion, scaled.Spec.Replicas = version, &replicas
		return &scaled, nil
	case *appsv1.StatefulSet:
		scaled := *o
		scaled.ResourceVersion, scaled.Spec.Replicas = version, &replicas
		return &scaled, nil
	case *appsv1.ReplicaSet:
		scaled := *o
		scaled.ResourceVersion, scaled.Spec.Replicas = version, &replicas
		return &scaled, nil
	case *unstructured.Unstructured:
		first, rest, _ := strings.Cut(k.Scale, ".")
		content, err := with(o.Object, int64(replicas), first, rest)
		if err == nil {
			content, err = with(content, version, "metadata", "resourceVersion")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrUnreadable, k.Scale, err)
		}
		return &unstructured.Unstructured{Object: content}, nil
	}
	return nil, fmt.Errorf("a %T cannot be scaled", obj)
}

// with returns an object with a value at a path: a name, and the names after it with dots between them. It copies only the maps
// on the path.
func with(object map[string]any, value any, name, rest string) (map[string]any, error) {
	object = maps.Clone(object)
	if rest == "" {
		object[name] = value
		return object, nil
	}
	inner, ok := object[name].(map[string]any)
	switch {
	case !ok && object[name] != nil:
		return nil, fmt.Errorf("%s is no object", name)
	case inner == nil:
		inner = map[string]any{}
	}
	first, rest, _ := strings.Cut(rest, ".")
	inner, err := with(inner, value, first, rest)
	object[name] = inner
	return object, err
}
