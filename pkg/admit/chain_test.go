package admit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

const (
	create, update, del, connect = admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect
)

// plugin returns a plugin without a configuration.
func plugin(name string, h admit.Handler, rules ...admit.Rule) *admit.Plugin {
	return &admit.Plugin{Name: name, Rules: rules, New: func(admit.Deps, []byte) (admit.Handler, error) { return h, nil }}
}

// service enables all plugins of a family.
func service(t *testing.T, plugins ...*admit.Plugin) router.AdmissionService {
	t.Helper()
	return serviceWith(t, admit.Deps{}, plugins...)
}

func serviceWith(t *testing.T, d admit.Deps, plugins ...*admit.Plugin) router.AdmissionService {
	t.Helper()
	enabled := map[string][]byte{}
	for _, p := range plugins {
		enabled[p.Name] = nil
	}
	s, err := admit.Family{Name: "test", Plugins: plugins}.Service(d, enabled)
	if err != nil {
		t.Fatalf("Making the service: %v", err)
	}
	return s
}

// TestPluginsInOwnNamespace has two plugins with a rule for the same requests, one of them for Postern's own namespace. A
// call runs only the plugin whose rule holds in the namespace.
func TestPluginsInOwnNamespace(t *testing.T) {
	var ran []string
	running := func(name string) admit.Handler {
		return admit.Handler{Validate: func(context.Context, *admit.Request) error { ran = append(ran, name); return nil }}
	}
	elsewhere := plugin("Elsewhere", running("Elsewhere"), admit.On("pods", create))
	inOwn := plugin("Own", running("Own"), admit.On("pods", create).InOwnNamespace())
	family := admit.Family{Name: "test", Plugins: []*admit.Plugin{elsewhere, inOwn}}
	for _, c := range []struct {
		own, namespace string
		want           []string
	}{
		{"postern-system", "postern-system", []string{"Own"}},
		{"postern-system", "ns", []string{"Elsewhere"}},
		{"postern-system", "", []string{"Elsewhere"}},
		{"", "", []string{"Elsewhere"}},
	} {
		s, err := family.Service(admit.Deps{Namespace: c.own}, map[string][]byte{"Elsewhere": nil, "Own": nil})
		if err != nil {
			t.Fatal(err)
		}
		ran = nil
		resp := s.Validate(t.Context(), &admissionv1.AdmissionRequest{
			Operation: create, Namespace: c.namespace, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod"}`)},
		})
		if !resp.Allowed {
			t.Errorf("Postern in %q, a pod in %q: got %+v", c.own, c.namespace, resp.Result)
		}
		if diff := cmp.Diff(ran, c.want); diff != "" {
			t.Errorf("Postern in %q, a pod in %q: other plugins ran (-got +want):\n%s", c.own, c.namespace, diff)
		}
	}
}

// TestNamespacesThatCannotExist has requests in namespaces of which some cannot exist. No plugin runs in these.
func TestNamespacesThatCannotExist(t *testing.T) {
	var ran []string
	h := admit.Handler{Validate: func(_ context.Context, r *admit.Request) error { ran = append(ran, r.Namespace); return nil }}
	p := plugin("P", h, admit.On("*", create))
	s := service(t, p)
	other, err := admit.Family{Name: "test", Plugins: []*admit.Plugin{p}, AnyNamespace: true}.Service(admit.Deps{}, map[string][]byte{"P": nil})
	if err != nil {
		t.Fatal(err)
	}
	if resp := other.Validate(t.Context(), &admissionv1.AdmissionRequest{
		Operation: create, Namespace: "%", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod"}`)},
	}); !resp.Allowed || len(ran) == 0 {
		t.Errorf("A family for any namespace: got %+v after its plugins ran in %q", resp, ran)
	}
	for namespace, denied := range map[string]bool{"": false, "ns": false, "a..b": false, "%": true, "..": true, strings.Repeat("n", 254): true} {
		for resource, kind := range map[string]string{"pods": "Pod", "namespaces": "Namespace"} {
			ran = nil
			resp := s.Validate(t.Context(), &admissionv1.AdmissionRequest{
				Operation: create, Namespace: namespace, Kind: metav1.GroupVersionKind{Version: "v1", Kind: kind},
				Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource}, Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"` + kind + `"}`)},
			})
			want := denied && resource == "pods"
			if resp.Allowed == want || len(ran) > 0 == want {
				t.Errorf("%s in %.10q: got allowed %t, plugins ran in %q, want denied %t", resource, namespace, resp.Allowed, ran, want)
			}
			if want && (resp.Result.Code != http.StatusNotFound || resp.Result.Message != fmt.Sprintf("namespaces %q not found", namespace)) {
				t.Errorf("%s in %.10q: got %+v", resource, namespace, resp.Result)
			}
		}
	}
}

// TestObjectsThatTheRouterDecoded has requests whose objects the router decoded with the envelope.
func TestObjectsThatTheRouterDecoded(t *testing.T) {
	var got *admit.Request
	s := service(t, plugin("P", admit.Handler{Validate: func(_ context.Context, r *admit.Request) error { got = r; return nil }}, admit.On("pods", update)))
	const pod, binding = `{"metadata":{"name":"p"}}`, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"b"}}`
	ar := request(update, pod, binding)
	ar.Object.Object, ar.OldObject.Object = s.Objects.New(ar), s.Objects.New(ar)
	for _, raw := range []runtime.RawExtension{ar.Object, ar.OldObject} {
		if err := json.Unmarshal(raw.Raw, raw.Object); err != nil {
			t.Fatal(err)
		}
	}
	if resp := s.Validate(t.Context(), ar); !resp.Allowed {
		t.Fatalf("Got %+v", resp.Result)
	}
	if got.Object != ar.Object.Object {
		t.Errorf("Got %v, want the object of the router", got.Object)
	}
	// An object that names another kind is of that kind.
	if old, ok := got.OldObject.(*corev1.Binding); !ok || old.Name != "b" {
		t.Errorf("Got %#v, want a Binding", got.OldObject)
	}
	ar.Kind.Kind = "Custom"
	if obj := s.Objects.New(ar); obj != nil {
		t.Errorf("Got %#v for an unknown kind, want none", obj)
	}
}

// request returns a request for a pod in the namespace ns.
func request(op admissionv1.Operation, object, oldObject string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		UID: "u", Operation: op, Namespace: "ns",
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object: extension(object), OldObject: extension(oldObject),
	}
}

func extension(raw string) runtime.RawExtension {
	if raw == "" {
		return runtime.RawExtension{}
	}
	return runtime.RawExtension{Raw: []byte(raw)}
}

// recorder notes which plugins ran.
type recorder struct{ ran []string }

func (r *recorder) plugin(name string, err error, rules ...admit.Rule) *admit.Plugin {
	f := func(phase string) admit.Func {
		return func(context.Context, *admit.Request) error {
			r.ran = append(r.ran, phase+" "+name)
			return err
		}
	}
	in := func(p admit.Phase) bool {
		return slices.ContainsFunc(rules, func(r admit.Rule) bool { return r.Phase == admit.Both || r.Phase == p })
	}
	var h admit.Handler
	if in(admit.Mutating) {
		h.Mutate = f("mutate")
	}
	if in(admit.Validating) {
		h.Validate = f("validate")
	}
	return plugin(name, h, rules...)
}

func TestPluginsRunInOrderAndStopAtTheFirstError(t *testing.T) {
	var r recorder
	pods := admit.On("pods", create)
	s := service(t, r.plugin("C", nil, pods), r.plugin("A", nil, pods), r.plugin("Other", nil, admit.On("services", create)),
		r.plugin("No", admit.Deny(apierrors.NewBadRequest("no")), pods), r.plugin("B", nil, pods))
	resp := s.Mutate(t.Context(), request(create, `{}`, ""))
	if resp.Allowed || resp.Result.Message != "no" || resp.Result.Code != 400 {
		t.Errorf("Got %+v, want a denial with code 400 and the message no", resp)
	}
	s.Validate(t.Context(), request(create, `{}`, ""))
	want := []string{"mutate C", "mutate A", "mutate No", "validate C", "validate A", "validate No"}
	if !slices.Equal(r.ran, want) {
		t.Errorf("Got %v, want %v", r.ran, want)
	}
}

func TestServiceOfNothing(t *testing.T) {
	if s := service(t); s.Mutate != nil || s.Validate != nil || s.MutatingConfig != nil || s.ValidatingConfig != nil {
		t.Errorf("Got %+v, want no half", s)
	}
}

// TestServiceOfAnIdlePlugin covers a plugin whose feature gate is off. Its family is valid,
// and the API server never calls it.
func TestServiceOfAnIdlePlugin(t *testing.T) {
	s := service(t, plugin("Idle", admit.Handler{}, admit.On("pods", create)))
	if s.Mutate != nil || s.MutatingConfig != nil || s.ValidatingConfig == nil || len(s.ValidatingConfig.Webhooks) > 0 {
		t.Errorf("Got %+v, want a validating configuration without webhooks", s)
	}
	if _, err := router.New([]router.AdmissionService{s}, nil); err != nil {
		t.Errorf("Got %v, want a service that the router takes", err)
	}
	if resp := s.Validate(t.Context(), request(create, `{}`, "")); !resp.Allowed {
		t.Errorf("Got %+v, want allowed", resp)
	}
}

func pass(context.Context, *admit.Request) error { return nil }

func TestServiceNamesThePluginThatCannotBeMade(t *testing.T) {
	wrong := errors.New("wrong")
	p := &admit.Plugin{Name: "Broken", Configurable: true, New: func(admit.Deps, []byte) (admit.Handler, error) { return admit.Handler{}, wrong }}
	_, err := admit.Family{Name: "test", Plugins: []*admit.Plugin{p}}.Service(admit.Deps{}, map[string][]byte{"Broken": []byte("x")})
	if pluginErr, ok := errors.AsType[*admit.PluginError](err); !ok || pluginErr.Plugin != "Broken" || !errors.Is(err, wrong) {
		t.Errorf("Got %v, want the plugin's error with its name", err)
	}
}

func TestConfigurationOfAPluginThatHasNone(t *testing.T) {
	got := "not called"
	p := &admit.Plugin{Name: "Plain", New: func(_ admit.Deps, config []byte) (admit.Handler, error) {
		got = string(config)
		return admit.Handler{}, nil
	}}
	f := admit.Family{Name: "test", Plugins: []*admit.Plugin{p}}
	if _, err := f.Service(admit.Deps{}, map[string][]byte{"Plain": []byte("{}")}); err != nil || got != "" {
		t.Errorf("Got the configuration %q and %v, want none", got, err)
	}
	_, err := f.Service(admit.Deps{}, map[string][]byte{"Plain": []byte("limit: 1")})
	if wrong, ok := errors.AsType[*admit.ConfigError](err); !ok || wrong.Field != "limit" {
		t.Errorf("Got %v, want an error about the field limit", err)
	}
}

func TestRulesOfTheConfigurationAreAdded(t *testing.T) {
	var r recorder
	h := admit.Handler{Mutate: func(context.Context, *admit.Request) error { r.ran = append(r.ran, "ran"); return nil }, Rules: []admit.Rule{admit.On("services", create)}}
	s := service(t, plugin("P", h, admit.On("pods", create)))
	ar := request(create, `{}`, "")
	ar.Resource.Resource = "services"
	s.Mutate(t.Context(), ar)
	if len(r.ran) != 1 || len(s.MutatingConfig.Webhooks[0].Rules[0].Resources) != 2 {
		t.Errorf("Ran %v, rules %v; want one run and a rule for two resources", r.ran, s.MutatingConfig.Webhooks[0].Rules)
	}
}

func TestMutateIsShownToTheNextPluginAndPatched(t *testing.T) {
	first := plugin("First", admit.Handler{Mutate: admit.Typed(func(_ context.Context, _ *admit.Request, pod, _ *corev1.Pod) error {
		pod.Spec.NodeName = "n"
		return nil
	})}, admit.On("pods", create))
	second := plugin("Second", admit.Handler{Mutate: admit.Typed(func(_ context.Context, _ *admit.Request, pod, _ *corev1.Pod) error {
		pod.Spec.Hostname = "on-" + pod.Spec.NodeName
		return nil
	})}, admit.On("pods", create))
	resp := service(t, first, second).Mutate(t.Context(), request(create, `{"spec":{}}`, ""))
	want := `[{"op":"add","path":"/spec/nodeName","value":"n"},{"op":"add","path":"/spec/hostname","value":"on-n"}]`
	if !resp.Allowed || string(resp.Patch) != want {
		t.Errorf("Got %v and patch %s, want it allowed with %s", resp.Allowed, resp.Patch, want)
	}
}

// TestOldObjectStaysAsItWas passes both objects to a plugin that changes only one of them. The
// objects must not share memory.
func TestOldObjectStaysAsItWas(t *testing.T) {
	raw := `{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"c","env":[{"name":"X"}]}]}}`
	var old runtime.Object
	p := plugin("P", admit.Handler{Mutate: func(_ context.Context, r *admit.Request) error {
		old = r.OldObject
		pod := r.Object.(*corev1.Pod)
		pod.Labels["a"], pod.Spec.Containers[0].Env[0].Name = "2", "Y"
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{})
		return nil
	}}, admit.On("pods", update))
	ar := request(update, raw, raw)
	resp := service(t, p).Mutate(t.Context(), ar)
	var want corev1.Pod
	if err := json.Unmarshal([]byte(raw), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(old, runtime.Object(&want)); diff != "" || resp.Patch == nil || string(ar.Object.Raw) != raw {
		t.Errorf("The old object was changed, or the new one was not (-got +want):\n%s\npatch: %s", diff, resp.Patch)
	}
}

func TestAPluginMustNotTakeTheObjectAway(t *testing.T) {
	for name, put := range map[string]runtime.Object{"nothing": nil, "another type": &corev1.Service{}} {
		p := plugin("P", admit.Handler{Mutate: func(_ context.Context, r *admit.Request) error { r.Object = put; return nil }}, admit.On("pods", create, del))
		for _, ar := range []*admissionv1.AdmissionRequest{request(create, `{}`, ""), request(del, "null", `{}`)} {
			if put == nil && ar.Operation == del {
				continue // The request has no such object.
			}
			if resp := service(t, p).Mutate(t.Context(), ar); resp.Allowed || resp.Result.Code != 500 {
				t.Errorf("%s on %s: got %+v, want a failure", name, ar.Operation, resp)
			}
		}
	}
}

func TestObjectsOfARequest(t *testing.T) {
	type seen struct{ object, oldObject string }
	for _, c := range []struct {
		name, object, oldObject string
		op                      admissionv1.Operation
		kind                    metav1.GroupVersionKind
		want                    seen
	}{
		{"create", `{"metadata":{"name":"x"}}`, "", create, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, seen{"*v1.Pod x", "nil"}},
		{"update", `{}`, `{"metadata":{"name":"y"}}`, update, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, seen{"*v1.Pod ", "*v1.Pod y"}},
		{"delete", "null", `{"metadata":{"name":"y"}}`, del, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, seen{"nil", "*v1.Pod y"}},
		{"delete without a null", " ", `{}`, del, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, seen{"nil", "*v1.Pod "}},
		{"connect", `{"kind":"PodExecOptions","apiVersion":"v1","stdin":true}`, "null", connect, metav1.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}, seen{"*v1.PodExecOptions", "nil"}},
		{"an unknown kind", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t"}}`, "", create, metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, seen{"*unstructured.Unstructured t", "nil"}},
		{"another kind than the request's", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"b"}}`, "", create, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, seen{"*v1.Binding b", "nil"}},
		{"a kind without a version", `{"kind":"Pod","metadata":{"name":"p"}}`, "", create, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, seen{"*v1.Pod p", "nil"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got seen
			p := plugin("P", admit.Handler{Validate: func(_ context.Context, r *admit.Request) error {
				got = seen{describe(r.Object), describe(r.OldObject)}
				return nil
			}}, admit.On("pods", c.op))
			ar := request(c.op, c.object, c.oldObject)
			ar.Kind = c.kind
			if resp := service(t, p).Validate(t.Context(), ar); !resp.Allowed || got != c.want {
				t.Errorf("Got %v, allowed %v; want %v and true", got, resp.Allowed, c.want)
			}
		})
	}
}

func describe(obj runtime.Object) string {
	if obj == nil {
		return "nil"
	}
	if m, ok := obj.(metav1.Object); ok {
		return fmt.Sprintf("%T %s", obj, m.GetName())
	}
	return fmt.Sprintf("%T", obj)
}
