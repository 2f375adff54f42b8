package parity_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	controlplaneadmission "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"

	"github.com/postern-dev/postern/internal/conditions"
	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/internal/seed"
	"github.com/postern-dev/postern/pkg/admit/dispatch"
	"github.com/postern-dev/postern/pkg/router"
)

// TestDispatch compares package dispatch with the webhook plugins of the API server, for random services and requests.
func TestDispatch(t *testing.T) { dispatchRandomly(t, 60) }

// TestDispatchLong is TestDispatch with more services and requests.
func TestDispatchLong(t *testing.T) {
	ring.Second(t, "it takes more than 20 seconds")
	dispatchRandomly(t, 800)
}

func dispatchRandomly(t *testing.T, clusters int) {
	t.Helper()
	chance, compiler, seen := seed.Chance(t), conditions.NewCompiler(), map[string]int{}
	for i := range clusters {
		w := newWorld(t, chance, compiler)
		for range 20 {
			ar := randomRequest(chance)
			if !w.compare(t, ar, seen) {
				w.stop()
				t.Fatalf("Cluster %d of seed %d: the difference is above", i, seed.First(t))
			}
		}
		w.stop()
	}
	t.Logf("Compared: %v", seen)
	for _, name := range []string{"allowed", "denied", "failed", "forbidden", "not found", "dry run", "not patched", "of another version", "called again", "changed"} {
		if seen[name] == 0 {
			t.Errorf("No request of %d was %s", seen["requests"], name)
		}
	}
}

// pick returns one of several values.
func pick[T any](chance *rand.Rand, from ...T) T { return from[chance.IntN(len(from))] }

// world is a cluster with random services, and what calls them.
type world struct {
	services   []router.AdmissionService
	dispatcher *dispatch.Dispatcher
	upstream   admission.Interface
	stop       func()

	mu sync.Mutex
	// received are the webhooks that the API server called, each with its phase before a slash.
	received []string
}

func newWorld(t *testing.T, chance *rand.Rand, compiler *conditions.Compiler) *world {
	t.Helper()
	w := &world{services: randomServices(chance)}
	compiled := map[string]*conditions.Webhook{}
	for _, s := range w.services {
		for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
			webhooks, err := compiler.Of(s, phase)
			if err != nil {
				t.Fatalf("Compiling the conditions: %v", err)
			}
			for _, c := range webhooks {
				compiled[phase+"/"+c.Name] = c
			}
		}
	}
	var err error
	w.dispatcher, err = dispatch.New(w.services, dispatch.Options{
		Defaults: true,
		Conditions: func(ctx context.Context, of *dispatch.Webhook, ar *admissionv1.AdmissionRequest) (bool, error) {
			request, err := conditions.NewRequest(ar)
			if err != nil {
				return false, err
			}
			c := *compiled[of.Phase+"/"+of.Name]
			// The dispatcher has looked at the rules.
			c.Rules = []admissionregistrationv1.RuleWithOperations{everyRule()}
			match, err := c.Match(ctx, request, nil)
			return match.Called, err
		},
		NamespaceLabels: func(_ context.Context, name string) (labels.Set, error) {
			if found, ok := namespaces()[name]; ok {
				return found, nil
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
		},
	})
	if err != nil {
		t.Fatalf("Making the dispatcher: %v", err)
	}
	w.serve(t)
	return w
}

func everyRule() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}
}

// namespaces are the labels of the namespaces that exist.
func namespaces() map[string]labels.Set {
	return map[string]labels.Set{"shop": {"tier": "front"}, "lab": {"tier": "back", "team": "red"}, "bare": nil}
}

// serve starts the services, and an API server that calls them.
func (w *world) serve(t *testing.T) {
	t.Helper()
	r, err := router.New(w.services, router.NewMetrics(metrics.NewKubeRegistry()))
	if err != nil {
		t.Fatalf("Making the router: %v", err)
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, req *http.Request) {
		// The first segment of the path is the name of the webhook.
		name, path, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
		w.mu.Lock()
		w.received = append(w.received, path[strings.LastIndex(path, "/")+1:]+"/"+name)
		w.mu.Unlock()
		req.URL.Path = "/" + path
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, req)
		// The client of the API server would wait and repeat the call.
		answer.Header().Del("Retry-After")
		maps.Copy(out.Header(), answer.Header())
		out.WriteHeader(answer.Code)
		_, _ = out.Write(answer.Body.Bytes())
	}))
	var objects []runtime.Object
	for name, l := range namespaces() {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}})
	}
	objects = append(objects, w.configurations(server)...)
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = func() {
		cancel()
		factory.Shutdown()
		server.Close()
	}
	plugins := admission.NewPlugins()
	mutating.Register(plugins)
	validating.Register(plugins)
	w.upstream, err = plugins.NewFromPlugins(plugins.Registered(), noConfig{}, admission.PluginInitializers{
		initializer.New(client, nil, factory, nil, utilfeature.DefaultFeatureGate, compatibility.DefaultKubeEffectiveVersionForTest(), ctx.Done(), nil),
		webhookinitializer.NewPluginInitializer(func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return r }, webhook.NewDefaultServiceResolver()),
		controlplaneadmission.NewPluginInitializer(nil, exclusion.Excluded()),
	}, nil)
	if err != nil {
		t.Fatalf("Making the plugins: %v", err)
	}
	w.upstream = admission.WithAudit(w.upstream)
	factory.StartWithContext(ctx)
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Fatalf("The informer of %v did not sync", kind)
		}
	}
}

type noConfig struct{}

func (noConfig) ConfigFor(string) (io.Reader, error) { return nil, nil }

// configurations returns the configurations of the services as the API server has them, with the defaults.
func (w *world) configurations(server *httptest.Server) []runtime.Object {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	at := func(name, path string) admissionregistrationv1.WebhookClientConfig {
		url := server.URL + "/" + name + path
		return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca}
	}
	var out []runtime.Object
	for _, s := range w.services {
		if s.MutatingConfig != nil {
			c := s.MutatingConfig.DeepCopy()
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig = at(c.Webhooks[i].Name, s.Path+router.MutatePath)
			}
			legacyscheme.Scheme.Default(c)
			out = append(out, c)
		}
		if s.ValidatingConfig != nil {
			c := s.ValidatingConfig.DeepCopy()
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig = at(c.Webhooks[i].Name, s.Path+router.ValidatePath)
			}
			legacyscheme.Scheme.Default(c)
			out = append(out, c)
		}
	}
	return out
}

// outcome is what a request leads to.
type outcome struct {
	Mutating, Validating []string
	Object               string
	Warnings             []string
	Audit                map[string]string
	Status               *metav1.Status
}

// compare compares both ways to decide a request, and reports whether they agree.
func (w *world) compare(t *testing.T, ar *admissionv1.AdmissionRequest, seen map[string]int) bool {
	t.Helper()
	decision, err := w.dispatcher.Dispatch(t.Context(), ar.DeepCopy())
	if err != nil {
		t.Errorf("Dispatching: %v", err)
		return false
	}
	seen["requests"]++
	if slices.ContainsFunc(decision.Unknown, func(u dispatch.Unknown) bool { return u.Skipped }) {
		seen["only known to an API server"]++
		return true
	}
	got := ofDecision(t, decision, ar)
	want := w.decideUpstream(t, ar)
	// The API server answers with the first error that arrives.
	possible := w.statuses(decision, *ar.DryRun)
	if want.Status != nil && got.Status != nil && slices.ContainsFunc(possible, func(s *metav1.Status) bool { return cmp.Equal(s, want.Status) }) {
		if !cmp.Equal(got.Status, possible[0]) {
			t.Errorf("Got the status %v, want that of the first call: %v", got.Status, possible[0])
			return false
		}
		want.Status = got.Status
	}
	count(seen, decision, got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s of %s %s: the dispatcher differs from the API server (-, want): %s", ar.Operation, ar.Resource.Resource, ar.SubResource, diff)
		t.Logf("The request: %s", text(ar))
		for _, c := range decision.Calls {
			t.Logf("Called %s (again %t): %s, failure %v, changed %t", c.Webhook.Name, c.Again, text(c.Response), c.Failure, c.Changed)
			if c.Response != nil {
				t.Logf("The patch: %s", c.Response.Patch)
			}
		}
		for _, s := range w.services {
			t.Logf("A service: %s %s", text(s.MutatingConfig), text(s.ValidatingConfig))
		}
		return false
	}
	return true
}

func text(of any) string {
	out, err := json.Marshal(of)
	return fmt.Sprint(string(out), err)
}

func count(seen map[string]int, d *dispatch.Decision, o *outcome) {
	switch {
	case o.Status == nil:
		seen["allowed"]++
	case strings.Contains(o.Status.Message, "does not support dry run"):
		seen["dry run"]++
	case strings.HasPrefix(o.Status.Message, "admission webhook"):
		seen["denied"]++
	case strings.Contains(o.Status.Message, "failed calling webhook"):
		seen["failed"]++
	case o.Status.Message == "another version":
		seen["of another version"]++
	case strings.HasSuffix(o.Status.Message, " is forbidden: "):
		seen["forbidden"]++
	case o.Status.Reason == metav1.StatusReasonNotFound:
		seen["not found"]++
	default:
		seen["not patched"]++
	}
	for _, c := range d.Calls {
		if c.Again {
			seen["called again"]++
		}
		if c.Changed {
			seen["changed"]++
		}
	}
}

// ofDecision returns the outcome of the dispatcher.
func ofDecision(t *testing.T, d *dispatch.Decision, ar *admissionv1.AdmissionRequest) *outcome {
	t.Helper()
	out := &outcome{Warnings: sortedCopy(d.Warnings()), Audit: d.AuditAnnotations(), Status: withoutTexts(d.Status)}
	for _, c := range d.Calls {
		if c.Webhook.Phase == router.PhaseMutate {
			out.Mutating = append(out.Mutating, c.Webhook.Name)
		} else {
			out.Validating = append(out.Validating, c.Webhook.Name)
		}
	}
	slices.Sort(out.Validating)
	if d.Allowed() && d.Object != nil {
		out.Object = string(external(t, internal(t, d.Object), schema.GroupVersionKind(ar.Kind)))
	}
	return out
}

func sortedCopy(of []string) []string {
	out := slices.Clone(of)
	slices.Sort(out)
	return slices.Compact(out)
}

// statuses returns the answers that the API server may give because of calls of validating webhooks.
func (w *world) statuses(d *dispatch.Decision, dryRun bool) []*metav1.Status {
	var out []*metav1.Status
	for _, c := range d.Calls {
		switch {
		case c.Webhook.Phase != router.PhaseValidate:
		case c.Response != nil && !c.Response.Allowed:
			out = append(out, withoutTexts(&webhookerrors.ToStatusErr(c.Webhook.Name, c.Response.Result.DeepCopy()).ErrStatus))
		case c.Failure != nil && c.Webhook.FailurePolicy == admissionregistrationv1.Fail:
			out = append(out, withoutTexts(&apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", c.Webhook.Name, c.Failure)).ErrStatus))
		}
	}
	if !dryRun || d.Status == nil || !strings.Contains(d.Status.Message, "does not support dry run") && len(out) == 0 {
		return out
	}
	// A webhook with side effects is not called, so the decision does not name it. One of a webhook that was called does not exist.
	for _, s := range w.services {
		if s.ValidatingConfig == nil {
			continue
		}
		for _, v := range s.ValidatingConfig.Webhooks {
			if *v.SideEffects == admissionregistrationv1.SideEffectClassSome {
				out = append(out, withoutTexts(&webhookerrors.NewDryRunUnsupportedErr(v.Name).ErrStatus))
			}
		}
	}
	// Which of them is first is not known either.
	i := slices.IndexFunc(out, func(s *metav1.Status) bool { return cmp.Equal(s, withoutTexts(d.Status)) })
	if i > 0 {
		out[0], out[i] = out[i], out[0]
	}
	return out
}

// withoutTexts returns a status without the texts that differ: those of clients after a call that failed, those of CEL, which
// package conditions words, and that of an object of another version, in which the API server names a line of its source.
func withoutTexts(s *metav1.Status) *metav1.Status {
	if s == nil {
		return nil
	}
	out := s.DeepCopy()
	cut := func(text string) string {
		if strings.Contains(text, "no kind ") || strings.Contains(text, "no conversion ") {
			return "another version"
		}
		for _, marker := range []string{"failed calling webhook ", " is forbidden: "} {
			before, after, ok := strings.Cut(text, marker)
			if !ok || strings.HasPrefix(text, "admission webhook") {
				continue
			}
			if marker == "failed calling webhook " {
				name, _, _ := strings.Cut(after, ": ")
				return before + marker + name
			}
			return before + marker
		}
		return text
	}
	out.Message = cut(out.Message)
	if out.Details != nil {
		for i := range out.Details.Causes {
			out.Details.Causes[i].Message = cut(out.Details.Causes[i].Message)
		}
	}
	return out
}

// decideUpstream sends a request through the plugins of the API server.
func (w *world) decideUpstream(t *testing.T, ar *admissionv1.AdmissionRequest) *outcome {
	t.Helper()
	out := &outcome{}
	ctx := audit.WithAuditContext(warning.WithWarningRecorder(t.Context(), &sharedRecorder{into: (*recorder)(&out.Warnings)}))
	audits := audit.AuditContextFrom(ctx)
	if err := audits.Init(audit.RequestAuditConfig{Level: auditapi.LevelMetadata}, nil); err != nil {
		t.Fatalf("Starting the audit: %v", err)
	}
	a := admission.NewAttributesRecord(
		withDefaults(t, ar.Object.Raw), withDefaults(t, ar.OldObject.Raw), schema.GroupVersionKind(ar.Kind), ar.Namespace, ar.Name,
		schema.GroupVersionResource(ar.Resource), ar.SubResource, admission.Operation(ar.Operation), operationOptions(ar.Operation), *ar.DryRun, userOf(ar))
	w.received = nil
	o := served{objectInterfaces(), equivalents()}
	err := w.upstream.(admission.MutationInterface).Admit(ctx, a, o)
	if err == nil {
		err = w.upstream.(admission.ValidationInterface).Validate(ctx, a, o)
	}
	for _, name := range w.received {
		if phase, name, _ := strings.Cut(name, "/"); phase == router.PhaseMutate {
			out.Mutating = append(out.Mutating, name)
		} else {
			out.Validating = append(out.Validating, name)
		}
	}
	slices.Sort(out.Validating)
	out.Warnings, out.Audit = sortedCopy(out.Warnings), map[string]string{}
	for key, value := range audits.GetEventAnnotations() {
		if !strings.Contains(key, "webhook.admission.k8s.io/") {
			out.Audit[key] = value
		}
	}
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			t.Logf("The error has no status: %v", err)
		}
		out.Status = withoutTexts(responsewriters.ErrorToAPIStatus(err))
		// The registry adds these to the answer.
		out.Status.TypeMeta = metav1.TypeMeta{}
		return out
	}
	out.Object = string(external(t, a.GetObject(), a.GetKind()))
	return out
}

// sharedRecorder is a recorder for validating webhooks, which the API server calls at once.
type sharedRecorder struct {
	mu   sync.Mutex
	into *recorder
}

func (r *sharedRecorder) AddWarning(agent, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.into.AddWarning(agent, text)
}

// withDefaults decodes an object with its defaults, and converts it to the internal version.
func withDefaults(t *testing.T, raw []byte) runtime.Object {
	t.Helper()
	obj := versioned(t, raw)
	if obj == nil {
		return nil
	}
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		// The API server has numbers without a fraction as integers.
		if err := custom.UnmarshalJSON(raw); err != nil {
			t.Fatalf("Decoding an object: %v", err)
		}
		return custom
	}
	legacyscheme.Scheme.Default(obj)
	with, err := json.Marshal(obj)
	if err != nil {
		t.Fatalf("Encoding an object: %v", err)
	}
	return internal(t, with)
}

func operationOptions(o admissionv1.Operation) runtime.Object {
	switch o {
	case admissionv1.Create:
		return &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{Kind: "CreateOptions", APIVersion: "meta.k8s.io/v1"}}
	case admissionv1.Update:
		return &metav1.UpdateOptions{TypeMeta: metav1.TypeMeta{Kind: "UpdateOptions", APIVersion: "meta.k8s.io/v1"}}
	case admissionv1.Delete:
		return &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "meta.k8s.io/v1"}}
	default: // A CONNECT has its options as its object.
		return nil
	}
}

// served are object interfaces that know which resources have the same objects.
type served struct {
	admission.ObjectInterfaces
	mapper runtime.EquivalentResourceMapper
}

func (s served) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return s.mapper }

func equivalents() runtime.EquivalentResourceMapper {
	out := runtime.NewEquivalentResourceRegistry()
	for _, k := range kinds() {
		out.RegisterKindFor(schema.GroupVersionResource(k.resource), k.sub, schema.GroupVersionKind(k.kind))
	}
	old := schema.GroupVersion{Group: "autoscaling", Version: "v1"}
	out.RegisterKindFor(old.WithResource("horizontalpodautoscalers"), "", old.WithKind("HorizontalPodAutoscaler"))
	return out
}

// randomServices returns two to four services.
func randomServices(chance *rand.Rand) []router.AdmissionService {
	var out []router.AdmissionService
	names := chance.Perm(9)
	for i := range 2 + chance.IntN(3) {
		s := router.AdmissionService{Path: fmt.Sprintf("/s%d", i)}
		halves, salt := 1+chance.IntN(3), chance.Uint64()
		if halves&1 != 0 {
			c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", names[2*i])}}
			for j := range 1 + chance.IntN(3) {
				c.Webhooks = append(c.Webhooks, randomWebhook(chance, i, j))
			}
			s.MutatingConfig, s.Mutate = c, randomAdmit(salt, router.PhaseMutate)
		}
		if halves&2 != 0 {
			c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", names[2*i+1])}}
			for j := range 1 + chance.IntN(3) {
				w := randomWebhook(chance, i, j)
				c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
					Name: w.Name, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector,
					ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, MatchConditions: w.MatchConditions, AdmissionReviewVersions: w.AdmissionReviewVersions,
				})
			}
			s.ValidatingConfig, s.Validate = c, randomAdmit(salt+1, router.PhaseValidate)
		}
		out = append(out, s)
	}
	return out
}

// randomWebhook returns a webhook. A field that it does not set has its default.
func randomWebhook(chance *rand.Rand, service, index int) admissionregistrationv1.MutatingWebhook {
	sideEffects := pick(chance, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun, admissionregistrationv1.SideEffectClassSome)
	w := admissionregistrationv1.MutatingWebhook{
		Name: fmt.Sprintf("w%d.s%d.example.com", index, service), SideEffects: &sideEffects, AdmissionReviewVersions: []string{"v1"},
		FailurePolicy:      maybe(chance, admissionregistrationv1.Ignore, admissionregistrationv1.Fail),
		MatchPolicy:        maybe(chance, admissionregistrationv1.Exact, admissionregistrationv1.Equivalent),
		ReinvocationPolicy: maybe(chance, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy),
		NamespaceSelector:  randomSelector(chance, "tier", "team"),
		ObjectSelector:     randomSelector(chance, "app", "mark"),
	}
	for range 1 + chance.IntN(2) {
		w.Rules = append(w.Rules, randomRule(chance))
	}
	if chance.IntN(3) == 0 {
		for i := range 1 + chance.IntN(3) {
			w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{
				Name: fmt.Sprintf("c%d", i),
				Expression: pick(chance,
					"true", "true", "request.operation != 'DELETE'", "request.userInfo.username == 'alice'", "!has(request.namespace) || request.namespace != 'lab'",
					"object != null", "oldObject == null", "!(has(request.dryRun) && request.dryRun)", "request.resource.resource != 'pods' || request.kind.kind == 'Pod'",
					"!has(request.subResource) || request.subResource == 'status'", "request.options.kind != 'DeleteOptions'", "request.name == 'web'",
					// These cannot be evaluated for some requests.
					"object.metadata.labels.app == 'web'", "object.metadata.labels.mark != 'v1'", "request.namespace == 'shop'",
				),
			})
		}
	}
	return w
}

func maybe[T any](chance *rand.Rand, from ...T) *T {
	if chance.IntN(4) == 0 {
		return nil
	}
	out := pick(chance, from...)
	return &out
}

func randomSelector(chance *rand.Rand, keys ...string) *metav1.LabelSelector {
	requirement := metav1.LabelSelectorRequirement{Key: pick(chance, keys...), Operator: pick(chance, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
	switch chance.IntN(9) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{requirement}}
	case 2:
		requirement.Operator, requirement.Values = pick(chance, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), []string{"front", "web", "v1"}
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{requirement}}
	}
	return nil
}

func randomRule(chance *rand.Rand) admissionregistrationv1.RuleWithOperations {
	out := everyRule()
	if chance.IntN(3) == 0 {
		out.Operations = pick(chance, []admissionregistrationv1.OperationType{"CREATE"}, []admissionregistrationv1.OperationType{"UPDATE", "DELETE"}, []admissionregistrationv1.OperationType{"CONNECT", "CREATE"})
	}
	if chance.IntN(3) == 0 {
		out.APIGroups = pick(chance, []string{""}, []string{"example.com", "autoscaling"}, []string{"", "rbac.authorization.k8s.io"})
	}
	if chance.IntN(3) == 0 {
		out.APIVersions = pick(chance, []string{"v1"}, []string{"v2"}, []string{"v1", "v2"})
	}
	if chance.IntN(2) == 0 {
		out.Resources = pick(chance, []string{"pods"}, []string{"pods/*"}, []string{"*"}, []string{"pods", "pods/status"}, []string{"*/status", "widgets"}, []string{"pods/exec", "configmaps"}, []string{"namespaces", "*/exec"})
	}
	out.Scope = maybe(chance, admissionregistrationv1.AllScopes, admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope)
	return out
}

// randomAdmit returns an AdmitFunc that answers the same for the same operation, labels and annotations.
func randomAdmit(salt uint64, phase string) router.AdmitFunc {
	return func(_ context.Context, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		o := unstructured.Unstructured{}
		if err := json.Unmarshal(slices.Concat(ar.Object.Raw, map[bool][]byte{true: ar.OldObject.Raw}[len(ar.Object.Raw) == 0]), &o.Object); err != nil {
			panic(err)
		}
		h := fnv.New64()
		_, _ = fmt.Fprint(h, ar.Operation, ar.Resource, ar.SubResource, ar.Namespace, *ar.DryRun, o.GetLabels(), o.GetAnnotations())
		chance := rand.New(rand.NewPCG(salt, h.Sum64()))
		resp := &admissionv1.AdmissionResponse{Allowed: true}
		if chance.IntN(4) == 0 {
			resp.Warnings = []string{fmt.Sprintf("warning %d", chance.IntN(5)), "twice"}
		}
		if chance.IntN(3) == 0 {
			resp.AuditAnnotations = map[string]string{pick(chance, "verdict", "verdict", "of/two", "no good"): fmt.Sprint(chance.IntN(5))}
		}
		switch kind := chance.IntN(20); {
		case kind == 0:
			resp.Allowed = false
			resp.Result = &metav1.Status{
				Code: pick[int32](chance, 0, 200, 403, 422), Reason: pick(chance, "", metav1.StatusReasonForbidden, "Odd"), Message: pick(chance, "", "no"),
			}
			if chance.IntN(3) == 0 {
				resp.Result = nil
			}
		case kind == 1:
			resp.Allowed, resp.Result = false, &metav1.Status{Code: pick[int32](chance, 500, 503, 504, 999), Message: "broken"}
		case kind == 2:
			switch chance.IntN(6) {
			case 0:
				return nil
			case 1:
				resp.Patch = []byte(`[]`)
			case 2:
				resp.Patch = []byte(`[{"op":"add","path":"/metadata/labels","value":{}}]`)
			}
		case phase == router.PhaseMutate && kind < 12 && (ar.Operation != admissionv1.Delete || kind < 4):
			resp.Patch = randomPatch(chance, ar.Kind.Group == "example.com")
		}
		return resp
	}
}

func randomPatch(chance *rand.Rand, isCustom bool) []byte {
	value := pick(chance, "v1", "v2", "v3")
	switch chance.IntN(30) {
	case 0:
		return []byte(`[{"op":"remove","path":"/nothing/here"}]`)
	case 1:
		return []byte(pick(chance, `{"op":"remove"}`, `nonsense`, `["text"]`))
	case 2:
		return []byte(`[{"op":"add","path":"/spec","value":"text"}]`)
	case 3:
		return []byte(`[ ]`)
	case 4:
		return []byte(`[{"op":"add","path":"/spec/unknown","value":1}]`)
	case 5:
		return []byte(`[{"op":"add","path":"/metadata/labels","value":null}]`)
	case 6:
		return []byte(`[{"op":"add","path":"/metadata/labels","value":{"mark":1}}]`)
	case 16:
		// The API server finds a kind that it has later than one that it does not have, after more calls. The dispatcher finds both
		// at once, and another version of a custom kind, whose conversion is not part of the scheme.
		if !isCustom {
			return []byte(`[{"op":"replace","path":"/apiVersion","value":"v2"}]`)
		}
	case 7, 8, 9:
		return fmt.Appendf(nil, `[{"op":"add","path":"/metadata/annotations","value":{"note":%q}}]`, value)
	case 10, 11, 12:
		return []byte(`[{"op":"test","path":"/metadata/name","value":"web"}]`)
	case 13, 14, 15:
		return []byte(`[{"op":"remove","path":"/metadata/labels"}]`)
	}
	return fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels/%s","value":%q}]`, pick(chance, "app", "mark"), value)
}

// servedKind is a kind of requests.
type servedKind struct {
	kind       metav1.GroupVersionKind
	resource   metav1.GroupVersionResource
	sub        string
	operations []admissionv1.Operation
	isCluster  bool
	// rest is what the object has beside its kind and metadata.
	rest string
}

func kinds() []servedKind {
	all := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
	pods, pod := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	const podSpec = `"spec":{"containers":[{"name":"a","image":"registry.example.com/a"}]}`
	return []servedKind{
		{kind: pod, resource: pods, operations: all, rest: podSpec},
		{kind: pod, resource: pods, operations: all, rest: podSpec},
		{kind: pod, resource: pods, operations: []admissionv1.Operation{admissionv1.Update}, sub: "status", rest: podSpec + `,"status":{"phase":"Running"}`},
		{kind: metav1.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}, resource: pods, sub: "exec", operations: []admissionv1.Operation{admissionv1.Connect}, rest: `"command":["sh"],"container":"a"`},
		{kind: metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, resource: pods, sub: "eviction", operations: []admissionv1.Operation{admissionv1.Create}},
		{kind: metav1.GroupVersionKind{Version: "v1", Kind: "Namespace"}, resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}, operations: all, isCluster: true},
		{kind: metav1.GroupVersionKind{Version: "v1", Kind: "Namespace"}, resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}, sub: "finalize", operations: []admissionv1.Operation{admissionv1.Update}, isCluster: true},
		{kind: metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}, operations: all, rest: `"data":{"a":"b"}`},
		{kind: metav1.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, resource: metav1.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, operations: all, isCluster: true},
		{kind: metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, resource: metav1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, operations: all, rest: `"spec":{"size":3,"share":0.5}`},
		{kind: metav1.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}, resource: metav1.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}, operations: all, rest: `"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"web","apiVersion":"apps/v1"}}`},
		{kind: metav1.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"}, resource: metav1.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}, operations: all, isCluster: true},
		{kind: metav1.GroupVersionKind{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview"}, resource: metav1.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}, operations: all[:1], isCluster: true, rest: `"spec":{"user":"alice"}`},
	}
}

func randomRequest(chance *rand.Rand) *admissionv1.AdmissionRequest {
	k := pick(chance, kinds()...)
	dryRun := chance.IntN(6) == 0
	ar := &admissionv1.AdmissionRequest{
		Kind: k.kind, Resource: k.resource, SubResource: k.sub, Operation: pick(chance, k.operations...), DryRun: &dryRun,
		Name: "web", UserInfo: authenticationv1.UserInfo{Username: pick(chance, "alice", "bob"), Groups: []string{"system:authenticated"}},
	}
	inside := pick(chance, "shop", "shop", "lab", "bare", "gone")
	switch {
	case k.resource.Resource == "namespaces":
		ar.Name, ar.Namespace = inside, inside
	case !k.isCluster:
		ar.Namespace = inside
	}
	if ar.Operation != admissionv1.Delete {
		ar.Object.Raw = randomObject(chance, &k, ar)
	}
	if ar.Operation == admissionv1.Update || ar.Operation == admissionv1.Delete {
		ar.OldObject.Raw = randomObject(chance, &k, ar)
	}
	return ar
}

// randomObject returns an object for a request, with or without labels.
func randomObject(chance *rand.Rand, k *servedKind, ar *admissionv1.AdmissionRequest) []byte {
	fields := []string{fmt.Sprintf(`"kind":%q,"apiVersion":%q`, k.kind.Kind, schema.GroupVersion{Group: k.kind.Group, Version: k.kind.Version})}
	if ar.Operation != admissionv1.Connect && (k.kind.Kind != "SubjectAccessReview" || chance.IntN(2) == 0) {
		metadata := fmt.Sprintf(`"name":%q`, ar.Name)
		if !k.isCluster {
			metadata += fmt.Sprintf(`,"namespace":%q`, ar.Namespace)
		}
		metadata += pick(chance, "", `,"labels":{"app":"web"}`, `,"labels":{"app":"web","mark":"v1"}`, `,"labels":{"mark":"v2"}`, `,"labels":{}`, `,"annotations":{"note":"old"}`)
		fields = append(fields, `"metadata":{`+metadata+`}`)
	}
	if k.rest != "" {
		fields = append(fields, k.rest)
	}
	return []byte("{" + strings.Join(fields, ",") + "}")
}
