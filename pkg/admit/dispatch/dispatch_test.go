package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/pkg/admit/dispatch"
	"github.com/postern-dev/postern/pkg/registration"
	"github.com/postern-dev/postern/pkg/router"
)

// half is one half of a service in a test: what it answers, and what differs in its webhook.
type half struct {
	answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
	change func(*admissionregistrationv1.MutatingWebhook)
}

// service returns a service with the configuration of this name, whose webhooks are for everything, and named as the halves.
func service(config string, mutate, validate *half) router.AdmissionService {
	s := router.AdmissionService{Path: "/" + config}
	all := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
	webhook := func(h *half) admissionregistrationv1.MutatingWebhook {
		w := admissionregistrationv1.MutatingWebhook{Name: config + ".example.com", Rules: all}
		if h.change != nil {
			h.change(&w)
		}
		return w
	}
	if mutate != nil {
		s.Mutate = func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return mutate.answer(ar)
		}
		s.MutatingConfig = &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: config}, Webhooks: []admissionregistrationv1.MutatingWebhook{webhook(mutate)},
		}
	}
	if validate != nil {
		w := webhook(validate)
		s.Validate = func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return validate.answer(ar)
		}
		s.ValidatingConfig = &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: config}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: w.Name, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector,
				ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, MatchConditions: w.MatchConditions,
			}},
		}
	}
	return s
}

func admits(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// answers returns a func with an answer other than yes.
func answers(code int32, message string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: message}}
	}
}

// adds returns a func that adds a label that the object lacks.
func adds(label string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if strings.Contains(string(ar.Object.Raw), fmt.Sprintf("%q", label)) {
			return admits(ar)
		}
		return patches(fmt.Sprintf(`[{"op": "add", "path": "/metadata/labels/%s", "value": ""}]`, label))(ar)
	}
}

func patches(patch string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch)}
	}
}

func reinvoked(w *admissionregistrationv1.MutatingWebhook) {
	w.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
}

func ignored(w *admissionregistrationv1.MutatingWebhook) {
	w.FailurePolicy = new(admissionregistrationv1.Ignore)
}

func effects(class admissionregistrationv1.SideEffectClass) func(*admissionregistrationv1.MutatingWebhook) {
	return func(w *admissionregistrationv1.MutatingWebhook) { w.SideEffects = &class }
}

// when returns a change of a webhook that gives it a match condition.
func when(name, expression string) func(*admissionregistrationv1.MutatingWebhook) {
	return func(w *admissionregistrationv1.MutatingWebhook) {
		w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{Name: name, Expression: expression})
	}
}

// on returns a change of a webhook that restricts it to a resource such as apps/v1/deployments.
func on(resource string, more ...func(*admissionregistrationv1.MutatingWebhook)) func(*admissionregistrationv1.MutatingWebhook) {
	parts := strings.SplitN(resource, "/", 3)
	return func(w *admissionregistrationv1.MutatingWebhook) {
		w.Rules = []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: parts[:1], APIVersions: parts[1:2], Resources: parts[2:]},
		}}
		for _, change := range more {
			change(w)
		}
	}
}

// pod returns a request for a pod with the label app.
func pod(changes ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	ar := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "shop", Name: "web",
		Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object:   runtime.RawExtension{Raw: []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}}`)},
	}
	for _, change := range changes {
		change(ar)
	}
	return ar
}

func dryRun(ar *admissionv1.AdmissionRequest) { ar.DryRun = new(true) }

func deleted(ar *admissionv1.AdmissionRequest) {
	ar.Operation, ar.Object, ar.OldObject = admissionv1.Delete, runtime.RawExtension{}, ar.Object
}

func connected(ar *admissionv1.AdmissionRequest) {
	ar.Operation, ar.SubResource = admissionv1.Connect, "exec"
	ar.Kind.Kind, ar.Object.Raw = "PodExecOptions", []byte(`{"apiVersion": "v1", "kind": "PodExecOptions", "command": ["ls"]}`)
}

func as(group, version, resource, kind string) func(*admissionv1.AdmissionRequest) {
	return func(ar *admissionv1.AdmissionRequest) {
		ar.Kind = metav1.GroupVersionKind{Group: group, Version: version, Kind: kind}
		ar.Resource = metav1.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
}

// calls describes the calls of a decision, with + for a change, ! for a denial, ? for a failure and 2 for a second call.
func calls(d *dispatch.Decision) string {
	var out []string
	for _, c := range d.Calls {
		text := c.Webhook.Phase[:1] + ":" + c.Webhook.Configuration
		for _, mark := range []struct {
			is   bool
			text string
		}{{c.Again, "2"}, {c.Changed, "+"}, {c.Failure != nil, "?"}, {c.Response != nil && !c.Response.Allowed, "!"}} {
			if mark.is {
				text += mark.text
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// TestDispatch checks the calls of webhooks and the answer to the request. test/parity compares both with those of the API server
// for random services.
func TestDispatch(t *testing.T) {
	yes := &half{answer: admits}
	inShop := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	selecting := func(w *admissionregistrationv1.MutatingWebhook) { w.NamespaceSelector = inShop }
	labelled := func(ctx context.Context, name string) (labels.Set, error) {
		if name != "shop" {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}
		return labels.Set{"team": "shop"}, ctx.Err()
	}
	for name, tc := range map[string]struct {
		services []router.AdmissionService
		options  dispatch.Options
		request  *admissionv1.AdmissionRequest
		calls    string
		denied   string
		unknown  string
	}{
		"in the order of the configurations, mutating ones first": {
			services: []router.AdmissionService{service("b", yes, yes), service("c", yes, nil), service("a", yes, yes)}, calls: "m:a m:b m:c v:a v:b",
		},
		"an earlier one again after a change": {
			services: []router.AdmissionService{service("a", &half{admits, reinvoked}, nil), service("b", &half{adds("b"), reinvoked}, yes), service("c", yes, nil)},
			calls:    "m:a m:b+ m:c m:a2 v:b",
		},
		"again what changes in the second round, and those before it that were not called yet": {
			services: []router.AdmissionService{
				service("a", &half{func(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					if !strings.Contains(string(ar.Object.Raw), `"b"`) {
						return admits(ar)
					}
					return adds("a")(ar)
				}, reinvoked}, nil), service("b", &half{adds("b"), reinvoked}, nil), service("c", &half{admits, reinvoked}, nil),
			},
			calls: "m:a m:b+ m:c m:a2+ m:b2 m:c2",
		},
		"not again with the policy Never": {services: []router.AdmissionService{service("a", yes, nil), service("b", &half{adds("b"), reinvoked}, nil)}, calls: "m:a m:b+"},
		"not again after a patch without a change": {
			services: []router.AdmissionService{service("a", &half{admits, reinvoked}, nil), service("b", &half{answer: patches(`[{"op": "replace", "path": "/metadata/labels/app", "value": "web"}]`)}, nil)},
			calls:    "m:a m:b",
		},
		"the first denial of a mutating webhook is the last call": {
			services: []router.AdmissionService{service("a", &half{answer: answers(403, "no")}, yes), service("b", yes, yes)},
			calls:    "m:a!", denied: `403 admission webhook "a.example.com" denied the request: no`,
		},
		"all validating webhooks are called": {
			services: []router.AdmissionService{service("a", nil, &half{answer: answers(0, "")}), service("b", nil, &half{answer: answers(403, "no")})},
			calls:    "v:a! v:b!", denied: `400 admission webhook "a.example.com" denied the request without explanation`,
		},
		"a failure": {
			services: []router.AdmissionService{service("a", &half{answer: answers(500, "broken")}, nil), service("b", yes, nil)},
			calls:    "m:a?", denied: `500 Internal error occurred: failed calling webhook "a.example.com": broken`,
		},
		"a failure that is ignored": {
			services: []router.AdmissionService{service("a", &half{answers(500, "broken"), ignored}, &half{answers(503, "broken"), ignored}), service("b", yes, nil)}, calls: "m:a? m:b v:a?",
		},
		"a panic is a denial": {
			services: []router.AdmissionService{service("a", &half{func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { var p *int; *p = 1; return nil }, ignored}, nil)},
			calls:    "m:a!", denied: `500 admission webhook "a.example.com" denied the request: the admission service panicked, see its log`,
		},
		"a patch that is none is a failure":                  {services: []router.AdmissionService{service("a", &half{patches(`{}`), ignored}, nil)}, calls: "m:a?"},
		"a patch that cannot be applied is never ignored":    {services: []router.AdmissionService{service("a", &half{patches(`[{"op": "remove", "path": "/spec"}]`), ignored}, nil)}, calls: "m:a", denied: "500 Internal error occurred: error in remove for path: '/spec': Unable to remove nonexistent key: spec: missing value"},
		"a patch of what is deleted":                         {services: []router.AdmissionService{service("a", &half{adds("a"), ignored}, nil)}, request: pod(deleted), calls: "m:a", denied: "500 Internal error occurred: admission webhook \"a.example.com\" attempted to modify the object, which is not supported for this operation"},
		"a patch of the validating half":                     {services: []router.AdmissionService{service("a", nil, &half{adds("a"), ignored})}, calls: "v:a?"},
		"a DELETE":                                           {services: []router.AdmissionService{service("a", yes, yes)}, request: pod(deleted), calls: "m:a v:a"},
		"a CONNECT":                                          {services: []router.AdmissionService{service("a", yes, &half{admits, on("/v1/pods/exec")}), service("b", &half{admits, on("/v1/pods")}, nil)}, request: pod(connected), calls: "m:a v:a"},
		"a dry run without sideEffects":                      {services: []router.AdmissionService{service("a", &half{admits, ignored}, nil)}, request: pod(dryRun), calls: "m:a?"},
		"a dry run of a webhook with side effects":           {services: []router.AdmissionService{service("a", &half{admits, effects(admissionregistrationv1.SideEffectClassSome)}, nil)}, request: pod(dryRun), denied: `400 admission webhook "a.example.com" does not support dry run`},
		"a dry run of one that does":                         {services: []router.AdmissionService{service("a", &half{admits, effects(admissionregistrationv1.SideEffectClassNoneOnDryRun)}, nil)}, request: pod(dryRun), calls: "m:a"},
		"a configuration of webhooks":                        {services: []router.AdmissionService{service("a", yes, yes)}, request: pod(as("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"))},
		"an access review":                                   {services: []router.AdmissionService{service("a", yes, yes)}, request: pod(as("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"))},
		"an access review before 1.37":                       {services: []router.AdmissionService{service("a", yes, yes)}, options: dispatch.Options{CallsForReviews: true}, request: pod(as("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")), calls: "m:a v:a"},
		"a rule for another version":                         {services: []router.AdmissionService{service("a", &half{admits, on("/v2/pods")}, nil)}, unknown: "m:a only an API server converts v1 to v2"},
		"a rule for another version only":                    {services: []router.AdmissionService{service("a", &half{admits, on("/v2/pods", func(w *admissionregistrationv1.MutatingWebhook) { w.MatchPolicy = new(admissionregistrationv1.Exact) })}, nil)}},
		"an event of the other group":                        {services: []router.AdmissionService{service("a", &half{admits, on("/v1/events")}, nil)}, request: pod(as("events.k8s.io", "v1", "events", "Event")), unknown: "m:a only an API server converts events.k8s.io/v1 to v1"},
		"a namespaceSelector":                                {services: []router.AdmissionService{service("a", &half{admits, selecting}, nil)}, options: dispatch.Options{NamespaceLabels: labelled}, calls: "m:a"},
		"a namespaceSelector without a namespace":            {services: []router.AdmissionService{service("a", &half{admits, selecting}, nil)}, options: dispatch.Options{NamespaceLabels: labelled}, request: pod(func(ar *admissionv1.AdmissionRequest) { ar.Namespace = "" }), calls: "m:a"},
		"a namespaceSelector and a namespace that is absent": {services: []router.AdmissionService{service("a", &half{admits, selecting}, nil)}, options: dispatch.Options{NamespaceLabels: labelled}, request: pod(func(ar *admissionv1.AdmissionRequest) { ar.Namespace = "bank" }), denied: `404 namespaces "bank" not found`},
		"a namespaceSelector before a condition": {
			services: []router.AdmissionService{service("a", &half{admits, func(w *admissionregistrationv1.MutatingWebhook) {
				selecting(w)
				when("exclude", "has(request.namespace) && request.namespace == 'shop'")(w)
			}}, nil)}, options: dispatch.Options{NamespaceLabels: labelled}, request: pod(func(ar *admissionv1.AdmissionRequest) { ar.Namespace = "bank" }), denied: `404 namespaces "bank" not found`,
		},
		"a namespaceSelector and a namespace that is deleted": {
			services: []router.AdmissionService{service("a", &half{admits, selecting}, nil)}, options: dispatch.Options{NamespaceLabels: labelled}, calls: "m:a",
			request: pod(as("", "v1", "namespaces", "Namespace"), deleted, func(ar *admissionv1.AdmissionRequest) { ar.Name, ar.Namespace = "shop", "" }),
		},
		"a namespaceSelector and a new namespace": {services: []router.AdmissionService{service("a", &half{admits, selecting}, nil)}, request: pod(as("", "v1", "namespaces", "Namespace"))},
		"a namespaceSelector and no namespaces":   {services: []router.AdmissionService{service("a", &half{admits, selecting}, nil)}, calls: "m:a", unknown: "m:a the labels of the namespace shop are not known"},
		"objectSelectors": {services: []router.AdmissionService{
			service("a", &half{admits, func(w *admissionregistrationv1.MutatingWebhook) {
				w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
			}}, nil),
			service("b", &half{admits, func(w *admissionregistrationv1.MutatingWebhook) {
				w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
			}}, nil),
		}, calls: "m:a"},
		"a condition": {services: []router.AdmissionService{service("a", &half{admits, when("no", "false")}, nil)}, calls: "m:a", unknown: "m:a the match condition no is not evaluated"},
		"no labels, and a selector for their absence": {services: []router.AdmissionService{service("a", &half{admits, func(w *admissionregistrationv1.MutatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}}}
		}}, nil)}, request: pod(func(ar *admissionv1.AdmissionRequest) { ar.Object.Raw = []byte(`{"spec": {}}`) }), calls: "m:a"},
		"a patch that is empty, of what is deleted": {services: []router.AdmissionService{service("a", &half{answer: patches("[ ]")}, nil)}, request: pod(deleted), calls: "m:a"},
		"a patch of the form only":                  {services: []router.AdmissionService{service("a", &half{admits, reinvoked}, nil), service("b", &half{answer: patches(`[{"op": "add", "path": "/metadata/annotations", "value": {}}]`)}, nil)}, calls: "m:a m:b"},
		"a patch to another type":                   {services: []router.AdmissionService{service("a", &half{patches(`[{"op": "add", "path": "/spec", "value": 1}]`), ignored}, nil)}, calls: "m:a", denied: "500 Internal error occurred: json: cannot unmarshal number into Go struct field Pod.spec of type v1.PodSpec"},
		"a patch to another kind":                   {services: []router.AdmissionService{service("a", &half{patches(`[{"op": "replace", "path": "/kind", "value": "Secret"}]`), ignored}, nil)}, calls: "m:a", denied: "500 Internal error occurred: no conversion from /v1, Kind=Secret to /v1, Kind=Pod"},
		"a failure by one of two failure policies": {
			services: []router.AdmissionService{twoPolicies(answers(500, "broken"))}, calls: "m:two?",
			denied:  `500 Internal error occurred: failed calling webhook "two.example.com": broken`,
			unknown: "m:two the failure policy depends on a match condition that is not evaluated",
		},
		"no failure by two failure policies": {services: []router.AdmissionService{twoPolicies(admits)}, calls: "m:two"},
		"a condition of a family":            {services: []router.AdmissionService{service("a", &half{admits, when(router.SomethingToDo, "false")}, nil)}, calls: "m:a"},
		"a condition that is evaluated": {services: []router.AdmissionService{service("a", &half{admits, when("no", "false")}, nil)}, options: dispatch.Options{Conditions: func(context.Context, *dispatch.Webhook, *admissionv1.AdmissionRequest) (bool, error) {
			return false, nil
		}}},
		"a condition that fails":         {services: []router.AdmissionService{service("a", nil, yes), service("b", nil, &half{admits, when("no", "1/0")})}, options: dispatch.Options{Conditions: failing}, denied: `403 pods "web" is forbidden: division by zero`},
		"a condition that fails ignored": {services: []router.AdmissionService{service("a", nil, yes), service("b", nil, &half{admits, func(w *admissionregistrationv1.MutatingWebhook) { ignored(w); when("no", "1/0")(w) }})}, options: dispatch.Options{Conditions: failing}, calls: "v:a"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := dispatch.New(tc.services, tc.options)
			if err != nil {
				t.Fatal(err)
			}
			request := tc.request
			if request == nil {
				request = pod()
			}
			decision, err := d.Dispatch(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			denied, unknown := "", ""
			if decision.Status != nil {
				denied = fmt.Sprintf("%d %s", decision.Status.Code, decision.Status.Message)
			}
			for _, u := range decision.Unknown {
				unknown += u.Webhook.Phase[:1] + ":" + u.Webhook.Configuration + " " + u.Reason
			}
			if got := calls(decision); got != tc.calls || denied != tc.denied || unknown != tc.unknown || decision.Allowed() != (denied == "") {
				t.Errorf("Got calls %q, denied %q, unknown %q; want\n%q, %q, %q", got, denied, unknown, tc.calls, tc.denied, tc.unknown)
			}
		})
	}
}

// twoPolicies returns a service with two webhooks for its mutating half, as a family with plugins of both failure policies has them.
func twoPolicies(answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) router.AdmissionService {
	s := service("two", &half{answer, when(router.SomethingToDo, "false")}, nil)
	open := s.MutatingConfig.Webhooks[0]
	open.Name, open.MatchConditions = "open.example.com", nil
	ignored(&open)
	when(router.NotCalledAlready, "true")(&open)
	s.MutatingConfig.Webhooks = append(s.MutatingConfig.Webhooks, open)
	return s
}

func failing(_ context.Context, w *dispatch.Webhook, _ *admissionv1.AdmissionRequest) (bool, error) {
	if len(w.MatchConditions) == 0 {
		return true, nil
	}
	return false, errors.New("division by zero")
}

// TestRegistered checks that exempt requests reach no webhook, and that two webhooks of a half call it once.
func TestRegistered(t *testing.T) {
	yes := &half{answer: admits}
	s := service("a", yes, yes)
	for i, name := range []string{"b", "own"} {
		w := s.ValidatingConfig.Webhooks[0]
		w.Name = name + ".example.com"
		w.MatchConditions = []admissionregistrationv1.MatchCondition{
			{Name: router.NotCalledAlready, Expression: "false"}, {Name: router.OwnNamespace, Expression: "has(request.namespace) && request.namespace == 'postern-system'"},
		}[i : i+1]
		s.ValidatingConfig.Webhooks = append(s.ValidatingConfig.Webhooks, w)
	}
	deployment := registration.Deployment{Namespace: "postern-system", ExemptNamespaces: []string{"kube-system"}, Timeout: time.Second}
	d, err := dispatch.New([]router.AdmissionService{deployment.Registered(s)}, dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := func(namespace string) func(*admissionv1.AdmissionRequest) {
		return func(ar *admissionv1.AdmissionRequest) { ar.Namespace = namespace }
	}
	for name, tc := range map[string]struct {
		request *admissionv1.AdmissionRequest
		want    []string
	}{
		"a pod":                        {pod(), []string{"a.example.com", "a.example.com"}},
		"a pod in an exempt namespace": {pod(in("kube-system")), nil},
		"an exempt namespace":          {pod(as("", "v1", "namespaces", "Namespace"), in(""), func(ar *admissionv1.AdmissionRequest) { ar.Name = "kube-system" }), nil},
		"a namespace in the object": {pod(in(""), func(ar *admissionv1.AdmissionRequest) {
			ar.Object.Raw = []byte(`{"metadata": {"namespace": "kube-system"}}`)
		}), nil},
		"a pod in Postern's own": {pod(in("postern-system")), []string{"own.example.com"}},
		"of the API server":      {pod(func(ar *admissionv1.AdmissionRequest) { ar.UserInfo.Username = "system:apiserver" }), nil},
		"a lease":                {pod(as("coordination.k8s.io", "v1", "leases", "Lease")), nil},
	} {
		decision, err := d.Dispatch(t.Context(), tc.request)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, c := range decision.Calls {
			got = append(got, c.Webhook.Name)
		}
		if !slices.Equal(got, tc.want) || len(decision.Unknown) > 0 {
			t.Errorf("%s: got calls %v and unknown %v, want %v", name, got, decision.Unknown, tc.want)
		}
	}
}

// TestObject checks the object on its way: its defaults, its changes, and its name.
func TestObject(t *testing.T) {
	var seen []string
	sees := func(of func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return func(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var p corev1.Pod
			if err := json.Unmarshal(ar.Object.Raw, &p); err != nil {
				t.Error(err)
			}
			seen = append(seen, fmt.Sprintf("%s %q %s %d", ar.Name, p.Name, p.Spec.RestartPolicy, len(p.Spec.Containers)))
			return of(ar)
		}
	}
	s := service("a", &half{answer: sees(patches(`[{"op": "replace", "path": "/spec", "value": {"containers": [{"name": "a"}]}}]`))}, &half{answer: sees(admits)})
	d, err := dispatch.New([]router.AdmissionService{s}, dispatch.Options{
		Defaults:     true,
		GenerateName: func(base string) string { return base + "x" },
	})
	if err != nil {
		t.Fatal(err)
	}
	decision, err := d.Dispatch(t.Context(), pod(func(ar *admissionv1.AdmissionRequest) {
		ar.Name, ar.Object.Raw = "", []byte(`{"metadata": {"generateName": "web-"}, "spec": {}}`)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{` "" Always 0`, `web-x "web-x" Always 1`}, seen); diff != "" {
		t.Errorf("Objects differ (- want, + got):\n%s", diff)
	}
	if !decision.Allowed() || !strings.Contains(string(decision.Object), `"web-x"`) {
		t.Errorf("Got allowed %t and the object %s", decision.Allowed(), decision.Object)
	}
}

// TestNameOfPatch checks that a name that a patch gives is that of the request in the validating phase, and that a service sees the
// text of the object only.
func TestNameOfPatch(t *testing.T) {
	var seen []string
	s := service("a", &half{answer: patches(`[{"op": "add", "path": "/metadata/name", "value": "mine"}]`)}, &half{answer: func(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		seen = append(seen, fmt.Sprintf("%s %v", ar.Name, ar.Object.Object))
		return admits(ar)
	}})
	d, err := dispatch.New([]router.AdmissionService{s}, dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Dispatch(t.Context(), pod(func(ar *admissionv1.AdmissionRequest) {
		ar.Name, ar.Object = "", runtime.RawExtension{Raw: []byte(`{"metadata": {"generateName": "web-"}}`), Object: &corev1.Pod{}}
	})); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []string{"mine <nil>"}) {
		t.Errorf("Got %q", seen)
	}
}

// TestSaid checks the warnings and the audit annotations.
func TestSaid(t *testing.T) {
	says := &half{answer: func(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: ar.Name == "web", Warnings: []string{"old", "odd"}, AuditAnnotations: map[string]string{"why": ar.Name}}
	}}
	d, err := dispatch.New([]router.AdmissionService{service("a", says, says), service("b", says, nil)}, dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	decision, err := d.Dispatch(t.Context(), pod())
	if err != nil {
		t.Fatal(err)
	}
	if got := decision.Warnings(); !slices.Equal(got, []string{"old", "odd"}) {
		t.Errorf("Got warnings %q", got)
	}
	if diff := cmp.Diff(map[string]string{"a.example.com/why": "web", "b.example.com/why": "web"}, decision.AuditAnnotations()); diff != "" {
		t.Errorf("Audit annotations differ (- want, + got):\n%s", diff)
	}
}

// TestNoRequest checks the errors for requests that no API server sends, and for a context that ended.
func TestNoRequest(t *testing.T) {
	d, err := dispatch.New(nil, dispatch.Options{Defaults: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		request *admissionv1.AdmissionRequest
		want    string
	}{
		"no kind":         {pod(as("", "v1", "pods", "")), "a request has a kind and a resource, each with its version"},
		"no operation":    {pod(func(ar *admissionv1.AdmissionRequest) { ar.Operation = "" }), `the operation "" is not CREATE, UPDATE, DELETE or CONNECT`},
		"no object":       {pod(func(ar *admissionv1.AdmissionRequest) { ar.Object.Raw = nil }), "a CREATE has an object and no old object"},
		"an old object":   {pod(deleted, func(ar *admissionv1.AdmissionRequest) { ar.Object = ar.OldObject }), "a DELETE has an old object and no object"},
		"no update":       {pod(deleted, func(ar *admissionv1.AdmissionRequest) { ar.Operation = admissionv1.Update }), "an UPDATE has an object"},
		"another type":    {pod(func(ar *admissionv1.AdmissionRequest) { ar.Object.Raw = []byte(`{"spec": 1}`) }), "the object: "},
		"another old one": {pod(deleted, func(ar *admissionv1.AdmissionRequest) { ar.OldObject.Raw = []byte(`{"spec": 1}`) }), "the old object: "},
		"null":            {pod(func(ar *admissionv1.AdmissionRequest) { ar.Object.Raw = []byte(" null") }), "an object is a JSON object"},
		"another kind": {pod(func(ar *admissionv1.AdmissionRequest) {
			ar.Object.Raw = []byte(`{"apiVersion": "v1", "kind": "Secret"}`)
		}), "an object is of the kind /v1, Kind=Secret, and the request of /v1, Kind=Pod"},
		"two namespaces": {pod(func(ar *admissionv1.AdmissionRequest) { ar.Namespace = "bank" }), "the namespace of the provided object does not match the namespace sent on the request"},
	} {
		if _, err := d.Dispatch(t.Context(), tc.request); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: got error %v, want %q", name, err, tc.want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Dispatch(ended, pod()); !errors.Is(err, context.Canceled) {
		t.Errorf("Got error %v of a canceled context", err)
	}
}

// TestNoWebhook checks the errors for webhooks that an API server refuses.
func TestNoWebhook(t *testing.T) {
	for want, change := range map[string]func(*admissionregistrationv1.MutatingWebhook){
		`the objectSelector of the webhook a.example.com: "Is" is not a valid label selector operator`: func(w *admissionregistrationv1.MutatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
		},
		"the timeoutSeconds of the webhook a.example.com: 0 is not between 1 and 30": func(w *admissionregistrationv1.MutatingWebhook) { w.TimeoutSeconds = new(int32(0)) },
	} {
		if _, err := dispatch.New([]router.AdmissionService{service("a", &half{admits, change}, nil)}, dispatch.Options{}); err == nil || err.Error() != want {
			t.Errorf("Got error %v, want %s", err, want)
		}
	}
}

// TestNewObject checks what an API server changes in a new object before admission.
func TestNewObject(t *testing.T) {
	var seen corev1.Pod
	s := service("a", &half{answer: func(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if err := json.Unmarshal(ar.Object.Raw, &seen); err != nil {
			t.Error(err)
		}
		return admits(ar)
	}}, nil)
	d, err := dispatch.New([]router.AdmissionService{s}, dispatch.Options{Defaults: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Dispatch(t.Context(), pod(func(ar *admissionv1.AdmissionRequest) {
		ar.Object.Raw = []byte(`{"kind": "Pod", "metadata": {"name": "web", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "selfLink": "x"}, "unknown": 1}`)
	})); err != nil {
		t.Fatal(err)
	}
	want := metav1.ObjectMeta{Name: "web", Namespace: "shop"}
	if diff := cmp.Diff(want, seen.ObjectMeta); diff != "" || seen.APIVersion != "v1" {
		t.Errorf("Got apiVersion %q and other metadata (- want, + got):\n%s", seen.APIVersion, diff)
	}
}

// TestLateAnswer checks that the API server does not wait longer than the webhook may take.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service("a", &half{
			answer: func(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				time.Sleep(2 * time.Second)
				return adds("late")(ar)
			},
			change: func(w *admissionregistrationv1.MutatingWebhook) { ignored(w); w.TimeoutSeconds = new(int32(1)) },
		}, nil)
		d, err := dispatch.New([]router.AdmissionService{s}, dispatch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		decision, err := d.Dispatch(t.Context(), pod())
		if err != nil {
			t.Fatal(err)
		}
		if got := calls(decision); got != "m:a?" || strings.Contains(string(decision.Object), "late") {
			t.Errorf("Got calls %q and the object %s", got, decision.Object)
		}
	})
}
