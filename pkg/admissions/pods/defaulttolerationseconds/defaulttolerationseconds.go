// Package defaulttolerationseconds says how long a pod stays on a node that is
// not ready or not reachable, where the pod does not say so itself. See README.md.
package defaulttolerationseconds

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/postern-dev/postern/pkg/admissions/admit"
)

// inTreeSeconds is what kube-apiserver adds unless its own flags say otherwise.
const inTreeSeconds = 300

// Plugin is DefaultTolerationSeconds.
//
// Upstream: plugin/pkg/admission/defaulttolerationseconds.
var Plugin = &admit.Plugin{
	Name: "DefaultTolerationSeconds",
	Rules: []admit.Rule{
		admit.On("pods", admissionv1.Create, admissionv1.Update).If(lacks(corev1.TaintNodeNotReady) + " || " + lacks(corev1.TaintNodeUnreachable)),
	},
	Flags: []admit.Flag{notReady(), unreachable()},
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		p, err := newPlugin(d, data)
		if err != nil {
			return admit.Handler{}, err
		}
		return admit.Handler{Mutate: admit.Typed(p.mutate), Rules: p.rules()}, nil
	},
}

// lacks is the CEL for a pod that does not tolerate a taint in any way.
func lacks(key string) string {
	return "!" + admit.CELList("object.spec.tolerations") +
		fmt.Sprintf(".exists(t, (!has(t.key) || t.key in ['', '%s']) && (!has(t.effect) || t.effect in ['', 'NoExecute']))", key)
}

// hasInTree is the CEL for a pod that tolerates a taint as kube-apiserver has it.
func hasInTree(key string) string {
	return admit.CELList("object.spec.tolerations") +
		fmt.Sprintf(".exists(t, has(t.key) && t.key == '%s' && has(t.tolerationSeconds) && t.tolerationSeconds == %d)", key, inTreeSeconds)
}

func notReady() admit.Flag { return flag("not-ready", "notReady") }

func unreachable() admit.Flag { return flag("unreachable", "unreachable") }

func flag(name, taint string) admit.Flag {
	return admit.Flag{
		Name:    "default-" + name + "-toleration-seconds",
		Default: strconv.Itoa(inTreeSeconds),
		Usage:   "The tolerationSeconds of the toleration for " + taint + ":NoExecute that a pod gets if it has none.",
	}
}

type plugin struct {
	// added are for pods that do not tolerate the taint of that key.
	added []corev1.Toleration
	// replacing are those of them that also take the place of kube-apiserver's.
	replacing []corev1.Toleration
}

func newPlugin(d admit.Deps, data []byte) (*plugin, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return nil, err
	}
	p := &plugin{}
	for _, of := range []struct {
		taint string
		flag  admit.Flag
	}{{corev1.TaintNodeNotReady, notReady()}, {corev1.TaintNodeUnreachable, unreachable()}} {
		value := d.Flag(of.flag)
		seconds, err := strconv.ParseInt(value, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("--%s: want a number of seconds, not %q", of.flag.Name, value)
		}
		p.added = append(p.added, toleration(of.taint, seconds))
		if c.ReplaceInTreeDefault && seconds != inTreeSeconds {
			p.replacing = append(p.replacing, toleration(of.taint, seconds))
		}
	}
	return p, nil
}

// rules are for pods that have both tolerations already, from kube-apiserver.
func (p *plugin) rules() []admit.Rule {
	var terms []string
	for _, t := range p.replacing {
		terms = append(terms, hasInTree(t.Key))
	}
	if len(terms) == 0 {
		return nil
	}
	return []admit.Rule{admit.On("pods", admissionv1.Create).If(strings.Join(terms, " || "))}
}

func (p *plugin) mutate(_ context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
	if r.Operation == admissionv1.Create {
		for _, t := range p.replacing {
			replace(pod, toleration(t.Key, inTreeSeconds), t)
		}
	}
	for _, t := range p.added {
		if !tolerates(pod, t.Key) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, *t.DeepCopy())
		}
	}
	return nil
}

func replace(pod *corev1.Pod, from, to corev1.Toleration) {
	for i := range pod.Spec.Tolerations {
		if apiequality.Semantic.DeepEqual(pod.Spec.Tolerations[i], from) {
			pod.Spec.Tolerations[i] = *to.DeepCopy()
		}
	}
}

// tolerates reports whether the pod says anything about the taint of that key.
//
// Upstream: the operator and the value are not looked at.
func tolerates(pod *corev1.Pod, key string) bool {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}

func toleration(key string, seconds int64) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}
}
