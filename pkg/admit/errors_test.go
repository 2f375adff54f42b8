package admit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/postern-dev/postern/pkg/admit"
)

// deny runs a plugin that returns the error of the func for the request.
func deny(t *testing.T, ar *admissionv1.AdmissionRequest, f func(*admit.Request) error) *admissionv1.AdmissionResponse {
	t.Helper()
	p := plugin("P", admit.Handler{Validate: func(_ context.Context, r *admit.Request) error { return f(r) }}, admit.On("pods", create, update, del, connect))
	resp := service(t, p).Validate(t.Context(), ar)
	if resp == nil || resp.Allowed || resp.Result == nil {
		t.Fatalf("Got %+v, want a denial with a result", resp)
	}
	return resp
}

func TestNameOfADenial(t *testing.T) {
	for _, c := range []struct {
		name, requestName, object string
		op                        admissionv1.Operation
		kind                      string
		want                      string
	}{
		{"the request's", "req", `{"metadata":{"name":"obj","generateName":"gen"}}`, create, "Pod", "req"},
		{"the object's", "", `{"metadata":{"name":"obj","generateName":"gen"}}`, create, "Pod", "obj"},
		{"the generated one's", "", `{"metadata":{"generateName":"gen-"}}`, create, "Pod", "gen-"},
		{"nobody's", "", `{}`, create, "Pod", "Unknown"},
		{"no object", "", "", del, "Pod", "Unknown"},
		{"no object, but the request's", "req", "", del, "Pod", "req"},
		{"an object without metadata", "", `{"stdin":true}`, connect, "PodExecOptions", "Unknown/errorGettingName"},
		{"an unknown kind's", "", `{"apiVersion":"example.com/v1","kind":"T","metadata":{"name":"obj"}}`, create, "T", "obj"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ar := request(c.op, c.object, "")
			ar.Name, ar.Kind.Kind = c.requestName, c.kind
			got := *deny(t, ar, func(r *admit.Request) error { return admit.Forbidden(r, errors.New("why")) }).Result
			want := metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
				Message: fmt.Sprintf("pods %q is forbidden: why", c.want), Details: &metav1.StatusDetails{Name: c.want, Kind: "pods"},
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("Got another status (-got +want):\n%s", diff)
			}
		})
	}
}

func TestForbiddenSaysTheGroup(t *testing.T) {
	ar := request(create, `{}`, "")
	ar.Resource.Group, ar.Name = "apps", "web"
	p := plugin("P", admit.Handler{Validate: func(_ context.Context, r *admit.Request) error { return admit.Forbidden(r, errors.New("why")) }},
		admit.Rule{Group: "apps", Resources: []string{"pods"}, Operations: []admissionv1.Operation{create}})
	got := service(t, p).Validate(t.Context(), ar).Result
	if got.Message != `pods.apps "web" is forbidden: why` || got.Details.Group != "apps" {
		t.Errorf("Got %q of group %q, want the group in both", got.Message, got.Details.Group)
	}
}

func TestErrorsBecomeStatuses(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := apierrors.NewForbidden(pods, "x", errors.New("why"))
	withCause := apierrors.NewForbidden(pods, "x", errors.New("why"))
	withCause.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "f", Message: "m"}}
	for _, c := range []struct {
		name    string
		err     error
		code    int32
		reason  metav1.StatusReason
		message string
		causes  int
	}{
		{"forbidden", admit.Deny(forbidden), 403, metav1.StatusReasonForbidden, `pods "x" is forbidden: why`, 0},
		{"forbidden with a cause", admit.Deny(withCause), 403, metav1.StatusReasonForbidden, `pods "x" is forbidden: why`, 1},
		{"bad request", admit.Deny(apierrors.NewBadRequest("what")), 400, metav1.StatusReasonBadRequest, "what", 0},
		{"not found", admit.Deny(apierrors.NewNotFound(pods, "x")), 404, metav1.StatusReasonNotFound, `pods "x" not found`, 0},
		{"too many", admit.Deny(apierrors.NewTooManyRequests("slower", 3)), 429, metav1.StatusReasonTooManyRequests, "slower", 0},
		{"a wrapped denial", fmt.Errorf("container web: %w", admit.Deny(forbidden)), 403, metav1.StatusReasonForbidden, `container web: pods "x" is forbidden: why`, 0},
		{"a denial joined with a failure", errors.Join(errors.New("oh"), admit.Deny(forbidden)), 403, metav1.StatusReasonForbidden, "oh\n" + `pods "x" is forbidden: why`, 0},
		{"internal is no denial", admit.Deny(apierrors.NewInternalError(errors.New("oh"))), 500, "", "Internal error occurred: oh", 0},
		{"a status that says success", admit.Deny(&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusSuccess, Message: "odd"}}), 500, "", "odd", 0},
		{"plain", errors.New("oh"), 500, "", "oh", 0},
		// Errors of Postern's own client. None of them is a decision of a policy.
		{"our own missing rights", forbidden, 500, "", `pods "x" is forbidden: why`, 0},
		{"our own credentials", apierrors.NewUnauthorized("who"), 500, "", "who", 0},
		{"our own rate limit", apierrors.NewTooManyRequests("slower", 3), 500, "", "slower", 0},
		{"a missing object", apierrors.NewNotFound(pods, "x"), 500, "", `pods "x" not found`, 0},
		{"a wrapped status", fmt.Errorf("looking: %w", forbidden), 500, "", `looking: pods "x" is forbidden: why`, 0},
		{"an aggregate", utilerrors.NewAggregate([]error{forbidden}), 500, "", `pods "x" is forbidden: why`, 0},
		{"deadline", context.DeadlineExceeded, 504, "", "context deadline exceeded", 0},
		{"a wrapped deadline", fmt.Errorf("getting: %w", context.DeadlineExceeded), 504, "", "getting: context deadline exceeded", 0},
		{"canceled", context.Canceled, 500, "", "context canceled", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := deny(t, request(create, `{}`, ""), func(*admit.Request) error { return c.err }).Result
			causes, message := 0, c.message
			if c.code >= 500 {
				message = "plugin P: " + message
			}
			if got.Details != nil {
				causes = len(got.Details.Causes)
			}
			if got.Status != metav1.StatusFailure || got.Code != c.code || got.Reason != c.reason || got.Message != message || causes != c.causes {
				t.Errorf("Got %+v, want a failure with code %d, reason %q, %d causes and the message %q", got, c.code, c.reason, c.causes, message)
			}
		})
	}
}

func TestForbiddenIsNotWrappedTwice(t *testing.T) {
	inner := admit.Deny(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "inner", errors.New("why")))
	for name, err := range map[string]error{"itself": inner, "wrapped": fmt.Errorf("checking: %w", inner)} {
		if got := admit.Forbidden(&admit.Request{AdmissionRequest: request(create, "", "")}, err); !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("%s: got %v, want %v", name, got, err)
		}
	}
}

func TestForbiddenAsKeepsTheText(t *testing.T) {
	ar := request(create, `{"metadata":{"name":"x"}}`, "")
	got := deny(t, ar, func(r *admit.Request) error {
		return admit.ForbiddenAs(r, utilerrors.NewAggregate([]error{errors.New("a"), errors.New("b")}))
	}).Result
	want := &metav1.Status{
		Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: "[a, b]",
		Details: &metav1.StatusDetails{Name: "x", Kind: "pods"},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("Got another status (-got +want):\n%s", diff)
	}
}

func TestTooMany(t *testing.T) {
	d, ok := errors.AsType[*admit.Denial](admit.TooMany(errors.New("many")))
	if !ok || d.Status().Code != http.StatusTooManyRequests || d.Status().Message != "many" || d.Status().Details.RetryAfterSeconds != 1 {
		t.Errorf("Got %+v, want a denial with Retry-After", d)
	}
}

func TestWarningsAndAnnotations(t *testing.T) {
	for name, no := range map[string]error{"allowed": nil, "denied": admit.Deny(apierrors.NewBadRequest("no"))} {
		t.Run(name, func(t *testing.T) {
			say := func(plugin string, err error) admit.Func {
				return func(_ context.Context, r *admit.Request) error {
					r.Warn("%s says %d", plugin, 100)
					r.Audit("key", plugin)
					r.Audit(plugin, "x")
					r.Audit("plugin", "another")
					return err
				}
			}
			pods := admit.On("pods", create)
			s := service(t, plugin("A", admit.Handler{Mutate: say("A", nil)}, pods), plugin("B", admit.Handler{Mutate: say("B", no)}, pods), plugin("C", admit.Handler{Mutate: pass}, pods))
			resp := s.Mutate(t.Context(), request(create, `{}`, ""))
			if resp.Allowed != (no == nil) || resp.Patch != nil {
				t.Errorf("Got allowed %v and patch %s, want %v and none", resp.Allowed, resp.Patch, no == nil)
			}
			if diff := cmp.Diff(resp.Warnings, []string{"A says 100", "B says 100"}); diff != "" {
				t.Errorf("Got other warnings (-got +want):\n%s", diff)
			}
			want := map[string]string{"key": "B", "A": "x", "B": "x"}
			if no != nil {
				want["plugin"] = "B"
			}
			if diff := cmp.Diff(resp.AuditAnnotations, want); diff != "" {
				t.Errorf("Got other annotations (-got +want):\n%s", diff)
			}
		})
	}
}

func TestDenialAfterAChangeHasNoPatch(t *testing.T) {
	pods := admit.On("pods", create)
	s := service(t, plugin("Change", admit.Handler{Mutate: admit.Typed(func(_ context.Context, _ *admit.Request, pod, _ *corev1.Pod) error {
		pod.Spec.NodeName = "n"
		return nil
	})}, pods), plugin("No", admit.Handler{Mutate: func(context.Context, *admit.Request) error { return admit.Deny(apierrors.NewBadRequest("no")) }}, pods))
	if resp := s.Mutate(t.Context(), request(create, `{}`, "")); resp.Allowed || resp.Patch != nil {
		t.Errorf("Got allowed %v and patch %s, want neither", resp.Allowed, resp.Patch)
	}
}

func TestPluginsAreNotReachedAfterTheDeadline(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	var r recorder
	resp := service(t, r.plugin("P", nil, admit.On("pods", create))).Mutate(ctx, request(create, `{}`, ""))
	if len(r.ran) != 0 || resp.Result == nil || resp.Result.Code != http.StatusGatewayTimeout {
		t.Errorf("Ran %v and got %+v, want no run and code 504", r.ran, resp)
	}
}

// TestWhatCannotBeDecodedIsDenied covers objects that Postern does not read. An answer, unlike a failure, does not leave the
// request to the failure policy.
func TestWhatCannotBeDecodedIsDenied(t *testing.T) {
	svc := service(t, plugin("P", admit.Handler{Mutate: pass}, admit.On("pods", create)))
	for _, c := range []struct {
		name, object, oldObject, field string
		code                           int32
		reason                         metav1.StatusReason
	}{
		{"object", `{"spec":7}`, "", "request.object: ", http.StatusBadRequest, metav1.StatusReasonBadRequest},
		{"old object", `{}`, `{"metadata":{"labels":[]}}`, "request.oldObject: ", http.StatusBadRequest, metav1.StatusReasonBadRequest},
		{"quantity", `{"spec":{"overhead":{"cpu":"0.` + strings.Repeat("1", 2000) + `"}}}`, "", "request.object: ", http.StatusBadRequest, metav1.StatusReasonBadRequest},
		{
			"large", `{"spec":{"containers":[` + strings.Repeat("{},", 1_000_000) + `{}]}}`, "", "request.object: ",
			http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := svc.Mutate(t.Context(), request(create, c.object, c.oldObject))
			if resp.Allowed || resp.Result.Code != c.code || resp.Result.Reason != c.reason || !strings.HasPrefix(resp.Result.Message, c.field) {
				t.Errorf("Got %+v, want a denial with the code %d and %s", resp, c.code, c.field)
			}
		})
	}
}
