// Package defaulttolerationseconds sets how long a pod stays on a node that is not
// ready or unreachable, unless the pod sets it. See README.md.
package defaulttolerationseconds

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/postern-dev/postern/pkg/admit"
)

const name = "DefaultTolerationSeconds"

// inTreeSeconds is kube-apiserver's default. Flags of kube-apiserver may change it.
const inTreeSeconds = 300

// Plugin is DefaultTolerationSeconds.
//
// Upstream: plugin/pkg/admission/defaulttolerationseconds.
var Plugin = &admit.Plugin{
	Name: name,
	Rules: []admit.Rule{
		// No condition: a webhook that is called later may replace the tolerations.
		admit.On("pods", admissionv1.Create),
		admit.On("pods", admissionv1.Update).If(lacks(corev1.TaintNodeNotReady) + " || " + lacks(corev1.TaintNodeUnreachable)),
	},
	Flags:        []admit.Flag{notReady(), unreachable()},
	Configurable: true,
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		p, err := newPlugin(d, data)
		if err != nil {
			return admit.Handler{}, err
		}
		return admit.Handler{Mutate: admit.Typed(p.mutate), Warnings: p.warnings}, nil
	},
}

// lacks is the CEL for a pod without any toleration of a taint.
func lacks(key string) string {
	return admit.CELNone(admit.CELList("object.spec.tolerations"), "t",
		fmt.Sprintf("(!has(t.key) || t.key in ['', '%s']) && (!has(t.effect) || t.effect in ['', 'NoExecute'])", key))
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
	// added has a toleration per taint, for pods that do not tolerate the taint.
	added []corev1.Toleration
	// replacing is the subset of added that also replaces kube-apiserver's
	// toleration.
	replacing []corev1.Toleration
	warnings  []string
}

func newPlugin(d admit.Deps, data []byte) (*plugin, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return nil, err
	}
	p := &plugin{}
	var changed []string
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
		if seconds == inTreeSeconds {
			continue
		}
		changed = append(changed, "--"+of.flag.Name)
		if c.ReplaceInTreeDefault {
			p.replacing = append(p.replacing, toleration(of.taint, seconds))
		}
	}
	switch {
	case len(changed) == 0:
		p.warnings = d.Redundant(name, true)
	case !c.ReplaceInTreeDefault && d.APIServerRuns(name):
		p.warnings = []string{fmt.Sprintf("%s has no effect without replaceInTreeDefault in the configuration, because the API server's own plugin sets the seconds first", strings.Join(changed, ", "))}
	}
	return p, nil
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

// tolerates reports whether the pod has a toleration for the taint with that key.
//
// Upstream: tolerates ignores the operator and the value.
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
