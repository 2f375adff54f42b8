// Package securitycontextdeny denies pods that choose their user, their groups or their SELinux context. See README.md.
package securitycontextdeny

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/kinds/podspec"
	"github.com/postern-dev/postern/pkg/admit"
)

const gate featuregate.Feature = "SecurityContextDeny"

// checked returns the kinds of containers that kube-apiserver's plugin checks.
func checked() []podspec.ContainerKind {
	return []podspec.ContainerKind{podspec.InitContainers, podspec.Containers}
}

// Plugin is SecurityContextDeny.
//
// Upstream: plugin/pkg/admission/securitycontext/scdeny, until v1.29.
var Plugin = &admit.Plugin{
	Name:  "SecurityContextDeny",
	Rules: []admit.Rule{admit.On("pods", admissionv1.Create, admissionv1.Update).If(chosen(checked()...))},
	// Upstream: the gate was off by default. Here the name of the plugin is enough, because it never runs by default.
	Features:     map[featuregate.Feature]featuregate.FeatureSpec{gate: {Default: true, PreRelease: featuregate.Alpha}},
	Configurable: true,
	New: func(d admit.Deps, data []byte) (admit.Handler, error) {
		c, err := admit.LoadConfig[config](data)
		if err != nil {
			return admit.Handler{}, err
		}
		if !d.Features.Enabled(gate) {
			return admit.Handler{}, fmt.Errorf("it requires the feature gate %s", gate)
		}
		p := &plugin{kinds: checked()}
		h := admit.Handler{Validate: admit.Typed(p.validate), Warnings: d.Redundant("SecurityContextDeny", !c.IncludeEphemeralContainers)}
		if c.IncludeEphemeralContainers {
			p.kinds = podspec.ContainerKinds()
			h.Rules = []admit.Rule{
				admit.On("pods", admissionv1.Update).If(chosen(p.kinds...)),
				admit.On("pods/ephemeralcontainers", admissionv1.Update).If(chosen(p.kinds...)),
			}
		}
		return h, nil
	},
}

// chosen is the CEL for a pod that the plugin denies.
func chosen(kinds ...podspec.ContainerKind) string {
	set := func(path string) string { return admit.CELValue(path, "null") + " != null" }
	terms := []string{podspec.WithoutContainers()}
	for _, field := range []string{"supplementalGroups", "seLinuxOptions", "runAsUser", "fsGroup"} {
		terms = append(terms, set("object.spec.securityContext."+field))
	}
	for _, kind := range kinds {
		terms = append(terms, admit.CELAny(admit.CELList("object.spec."+string(kind)), "c",
			set("c.securityContext.seLinuxOptions")+" || "+set("c.securityContext.runAsUser")))
	}
	return strings.Join(terms, " || ")
}

type plugin struct {
	// kinds are the kinds of containers to check.
	kinds []podspec.ContainerKind
}

func (p *plugin) validate(_ context.Context, _ *admit.Request, pod, _ *corev1.Pod) error {
	field := p.chosenField(&pod.Spec)
	if field == "" {
		return nil
	}
	// Upstream: the message has the name of the object, not of the request.
	return admit.Deny(apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New(field+" is forbidden")))
}

// chosenField returns the first field of a pod that is not allowed, in the words of kube-apiserver, or "". A field that
// is set is not allowed, whatever its value.
func (p *plugin) chosenField(spec *corev1.PodSpec) string {
	if c := spec.SecurityContext; c != nil {
		switch {
		case c.SupplementalGroups != nil:
			return "pod.Spec.SecurityContext.SupplementalGroups"
		case c.SELinuxOptions != nil:
			return "pod.Spec.SecurityContext.SELinuxOptions"
		case c.RunAsUser != nil:
			return "pod.Spec.SecurityContext.RunAsUser"
		case c.FSGroup != nil:
			return "pod.Spec.SecurityContext.FSGroup"
		}
	}
	for container := range podspec.EachContainer(spec, p.kinds...) {
		if c := container.SecurityContext; c != nil {
			switch {
			case c.SELinuxOptions != nil:
				return "SecurityContext.SELinuxOptions"
			case c.RunAsUser != nil:
				return "SecurityContext.RunAsUser"
			}
		}
	}
	return ""
}
