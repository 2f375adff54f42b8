package workload

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/quantities"
)

// Custom describes where the objects of a custom kind have their pods.
type Custom struct {
	Groups []Group
	// Suspended is the path of a bool. An object in which it is true has no usage.
	Suspended string
	// Finished are types of status.conditions. An object has no usage if one of them is True.
	Finished []string
}

// Group describes a part of an object that has equal pods.
type Group struct {
	// Path is the path of the part, such as spec.mpiReplicaSpecs.*. A * matches all values of a map or a list.
	Path string
	// Replicas are the paths of numbers in the part. Their product is the number of pods.
	Replicas []string
	// Absent is the default of a missing number.
	Absent int64
	// Template is the path of the pod template in the part.
	Template string
}

// maxReplicas is the largest number of replicas. API servers reject a larger number for the kinds of k8s.io/api.
const maxReplicas = 1<<31 - 1

// maxTemplates is the largest number of pod templates in an object. An object of the largest size that etcd stores has
// more only if the templates are nearly empty, and decoding such templates would take far more memory than their text.
const maxTemplates = 10_000

func (c *Custom) parts(obj map[string]any) ([]part, error) {
	if c.Suspended != "" {
		if suspended, _, err := unstructured.NestedBool(obj, strings.Split(c.Suspended, ".")...); err == nil && suspended {
			return nil, nil
		}
	}
	if c.finished(obj) {
		return nil, nil
	}
	var out []part
	for _, g := range c.Groups {
		found := resolve(obj, strings.Split(g.Path, "."), "")
		if len(found) > maxTemplates-len(out) {
			return nil, fmt.Errorf("%w: it has more than %d pod templates", ErrUnreadable, maxTemplates)
		}
		for _, n := range found {
			p, err := g.part(n)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	return out, nil
}

func (c *Custom) finished(obj map[string]any) bool {
	if len(c.Finished) == 0 {
		return false
	}
	conditions, _, err := unstructured.NestedSlice(obj, "status", "conditions")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(conditions, func(item any) bool {
		condition, ok := item.(map[string]any)
		if !ok {
			return false
		}
		kind, _ := condition["type"].(string)
		return condition["status"] == string(corev1.ConditionTrue) && slices.Contains(c.Finished, kind)
	})
}

// node is a value in an object and its path.
type node struct {
	path  string
	value any
}

// resolve returns the values at a path.
func resolve(value any, path []string, at string) []node {
	if len(path) == 0 {
		return []node{{at, value}}
	}
	var out []node
	switch v := value.(type) {
	case map[string]any:
		keys := []string{path[0]}
		if path[0] == "*" {
			keys = keys[:0]
			for key := range v {
				keys = append(keys, key)
			}
			sort.Strings(keys)
		}
		for _, key := range keys {
			if child, ok := v[key]; ok {
				out = append(out, resolve(child, path[1:], strings.TrimPrefix(at+"."+key, "."))...)
			}
		}
	case []any:
		if path[0] != "*" {
			break
		}
		for i, child := range v {
			out = append(out, resolve(child, path[1:], at+"["+strconv.Itoa(i)+"]")...)
		}
	}
	return out
}

func (g *Group) part(n node) (part, error) {
	fields, ok := n.value.(map[string]any)
	if !ok {
		return part{}, fmt.Errorf("%w: %s is no mapping", ErrUnreadable, n.path)
	}
	pods := int64(1)
	for _, path := range g.Replicas {
		factor := min(g.Absent, maxReplicas)
		for _, found := range resolve(fields, strings.Split(path, "."), n.path) {
			if found.value == nil {
				// In the API of Kubernetes, null means absent.
				continue
			}
			number, ok := found.value.(int64)
			if !ok {
				return part{}, fmt.Errorf("%w: %s is no whole number", ErrUnreadable, found.path)
			}
			factor = min(max(number, 0), maxReplicas)
		}
		// The product of two numbers up to maxReplicas does not overflow. The result is bounded again before the next
		// factor.
		pods = min(pods, maxReplicas) * factor
	}
	templates := resolve(fields, strings.Split(g.Template, "."), n.path)
	if len(templates) == 0 {
		return part{}, fmt.Errorf("%w: %s has no %s", ErrUnreadable, n.path, g.Template)
	}
	content, ok := templates[0].value.(map[string]any)
	if !ok {
		return part{}, fmt.Errorf("%w: %s is no pod template", ErrUnreadable, templates[0].path)
	}
	// API servers do not parse the quantities of custom resources.
	if path := quantities.In(content); path != "" {
		return part{}, fmt.Errorf("%w: %s%s: %w", ErrUnreadable, templates[0].path, path, quantities.ErrFarCustom)
	}
	template := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, template); err != nil {
		return part{}, fmt.Errorf("%w: %s is no pod template: %w", ErrUnreadable, templates[0].path, err)
	}
	return part{pods, podOf(template)}, nil
}
