package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

// release is what a revision of the Deployment runs: a version of Postern with its flags.
type release struct {
	hash       string
	deployment Deployment
	// strict and lenient are the services without and with replicas of another version.
	strict, lenient []router.AdmissionService
	digest          string
	plugins         []string
	// unreachable is true if the API server cannot call it, for example because of its port.
	unreachable bool
}

func (r *release) has(plugin string) bool { return slices.Contains(r.plugins, plugin) }

// registers reports whether the release registers a configuration.
func (r *release) registers(key configKey) bool {
	return slices.ContainsFunc(r.strict, func(s router.AdmissionService) bool { return slices.Contains(r.deployment.keys(s), key) })
}

// service returns the service with a registered path, or nil.
func (r *release) service(path string, mixed bool) *router.AdmissionService {
	services := r.strict
	if mixed {
		services = r.lenient
	}
	for i, s := range services {
		if strings.HasPrefix(path, s.Path+"/") {
			return &services[i]
		}
	}
	return nil
}

// sets is a plugin that sets a label of pods, and denies pods with another value.
func sets(name, label string) *admit.Plugin {
	return &admit.Plugin{
		Name: name, Rules: []admit.Rule{admit.On("pods", admissionv1.Create)},
		New: func(admit.Deps, []byte) (admit.Handler, error) {
			return admit.Handler{
				Mutate: func(_ context.Context, r *admit.Request) error {
					if p := r.Object.(*corev1.Pod); p.Labels[label] == "" {
						metav1.SetMetaDataLabel(&p.ObjectMeta, label, "set")
					}
					return nil
				},
				Validate: func(_ context.Context, r *admit.Request) error {
					if r.Object.(*corev1.Pod).Labels[label] != "set" {
						return admit.Forbidden(r, errors.New("the label "+label))
					}
					return nil
				},
			}, nil
		},
	}
}

// forbids is a plugin that denies Services with a label.
func forbids(name, label string) *admit.Plugin {
	return &admit.Plugin{
		Name: name, Rules: []admit.Rule{admit.On("services", admissionv1.Create)},
		New: func(admit.Deps, []byte) (admit.Handler, error) {
			return admit.Handler{Validate: func(_ context.Context, r *admit.Request) error {
				if r.Object.(*corev1.Service).Labels[label] != "" {
					return admit.Forbidden(r, errors.New("the label "+label))
				}
				return nil
			}}, nil
		},
	}
}

// trafficObject is what a user creates, and the plugin that must refuse it, or "".
type trafficObject struct{ resource, kind, json, refusedBy string }

var traffic = []trafficObject{
	{"pods", "Pod", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}`, ""},
	{"services", "Service", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"}}`, ""},
	{"pods", "Pod", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","labels":{"tier":"mud"}}}`, "Tier"},
	{"pods", "Pod", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","labels":{"zone":"mud"}}}`, "Zone"},
	{"services", "Service", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x","labels":{"forbidden":"yes"}}}`, "Forbid"},
}

// releases returns every set of plugins of two families, of which an older version of Postern has only the first.
func releases(t *testing.T) []*release {
	t.Helper()
	pods := admit.Family{Name: "pods", Plugins: []*admit.Plugin{sets("Tier", "tier"), forbids("Forbid", "forbidden")}}
	zones := admit.Family{Name: "zones", Plugins: []*admit.Plugin{sets("Zone", "zone")}}
	var out []*release
	add := func(families []admit.Family, plugins ...string) {
		for _, unreachable := range []bool{false, true} {
			r := &release{
				hash: fmt.Sprintf("hash%d", len(out)), plugins: plugins, unreachable: unreachable,
				deployment: Deployment{Namespace: "postern-system", Service: "postern", Port: 443, Timeout: time.Duration(len(families)) * time.Second},
			}
			enabled := map[string][]byte{}
			for _, p := range plugins {
				enabled[p] = nil
			}
			for mixed, services := range map[bool]*[]router.AdmissionService{false: &r.strict, true: &r.lenient} {
				for _, f := range families {
					s, err := f.Service(admit.Deps{Mixed: func() bool { return mixed }}, enabled)
					if err != nil {
						t.Fatal(err)
					}
					*services = append(*services, s)
				}
			}
			var err error
			if r.digest, err = r.deployment.Digest(r.strict); err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
	}
	for _, plugins := range [][]string{{}, {"Tier"}, {"Forbid"}, {"Tier", "Forbid"}} {
		add([]admit.Family{pods}, plugins...)
		add([]admit.Family{pods, zones}, plugins...)
		add([]admit.Family{pods, zones}, append(slices.Clone(plugins), "Zone")...)
	}
	return out
}

// outcome is what becomes of an object that a user creates.
type outcome string

const (
	admitted outcome = "admitted"
	refused  outcome = "refused"
	failed   outcome = "failed" // The replica does not serve the path.
)

// answers remembers the answers of replicas, which depend on nothing else.
type answers map[question]answer

type question struct {
	release      *release
	path, object string
	mixed        bool
}

type answer struct {
	outcome outcome
	object  string
}

// ask returns the answer of a replica to a call of a webhook for an object.
func (a answers) ask(ctx context.Context, q question, o trafficObject) answer {
	if known, ok := a[q]; ok {
		return known
	}
	out := answer{outcome: failed}
	if s := q.release.service(q.path, q.mixed); s != nil {
		admit := s.Validate
		if strings.HasSuffix(q.path, router.MutatePath) {
			admit = s.Mutate
		}
		out.object, out.outcome = q.object, admitted
		if admit != nil {
			out = review(ctx, admit, q.object, o)
		}
	}
	a[q] = out
	return out
}

func review(ctx context.Context, admit router.AdmitFunc, object string, o trafficObject) answer {
	resp := admit(ctx, &admissionv1.AdmissionRequest{
		UID: "u", Operation: admissionv1.Create, Namespace: "shop", Name: "x",
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: o.kind}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: o.resource},
		Object: runtime.RawExtension{Raw: []byte(object)},
	})
	if !resp.Allowed {
		return answer{outcome: refused}
	}
	if resp.Patch != nil {
		changed, err := applyJSONPatch([]byte(object), resp.Patch)
		if err != nil {
			panic(err)
		}
		object = string(changed)
	}
	return answer{admitted, object}
}

// callee is the replica that answers one of the two calls.
type callee struct {
	release *release
	mixed   bool
}

// create has a user create an object. One replica gets the mutating calls, and one the validating ones.
func (a answers) create(ctx context.Context, o trafficObject, mutating, validating []*unstructured.Unstructured, first, second callee) outcome {
	object := o.json
	for _, half := range []struct {
		configs []*unstructured.Unstructured
		callee  callee
	}{{mutating, first}, {validating, second}} {
		for _, config := range half.configs {
			for _, w := range webhookList(config.Object) {
				if !calls(w, o.resource) {
					continue
				}
				answer := a.ask(ctx, question{half.callee.release, calledPath(w), object, half.callee.mixed}, o)
				if answer.outcome != admitted {
					return answer.outcome
				}
				object = answer.object
			}
		}
	}
	return admitted
}

// calls reports whether the API server calls a webhook for creations of a resource.
func calls(webhook any, resource string) bool {
	rules, _ := asMap(webhook)["rules"].([]any)
	return slices.ContainsFunc(rules, func(rule any) bool {
		resources, _ := asMap(rule)["resources"].([]any)
		return slices.Contains(resources, any(resource))
	})
}

// asks reports whether the API server asks a plugin about the objects that it must refuse.
func asks(validating []*unstructured.Unstructured, plugin string) bool {
	for _, o := range traffic {
		if o.refusedBy != plugin {
			continue
		}
		return slices.ContainsFunc(validating, func(u *unstructured.Unstructured) bool {
			return u.GetName() == configOf(plugin) && slices.ContainsFunc(webhookList(u.Object), func(w any) bool { return calls(w, o.resource) })
		})
	}
	return false
}

// configOf returns the name of the configurations of a plugin.
func configOf(plugin string) string {
	if plugin == "Zone" {
		return "postern-zones"
	}
	return "postern-pods"
}
