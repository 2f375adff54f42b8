package intree_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/intree"
)

var pods = []admit.Rule{admit.On("pods", admissionv1.Create, admissionv1.Update, admissionv1.Delete), admit.On("pods/exec", admissionv1.Connect)}

// stamper is a third-party plugin, written for a custom API server. It implements both phases.
type stamper struct {
	*admission.Handler

	admit    func(context.Context, admission.Attributes, admission.ObjectInterfaces) error
	validate func(context.Context, admission.Attributes, admission.ObjectInterfaces) error
}

func (s *stamper) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return s.admit(ctx, a, o)
}

func (s *stamper) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if s.validate == nil {
		return nil
	}
	return s.validate(ctx, a, o)
}

func made(p admission.Interface) admission.Factory {
	return func(io.Reader) (admission.Interface, error) { return p, nil }
}

// admitting serves a plugin with the given Admit, for all operations except UPDATE.
func admitting(t *testing.T, ar *admissionv1.AdmissionRequest, f func(context.Context, admission.Attributes, admission.ObjectInterfaces) error) *admissionv1.AdmissionResponse {
	t.Helper()
	p := &stamper{Handler: admission.NewHandler(admission.Create, admission.Delete, admission.Connect), admit: f}
	return serve(t, admit.Deps{}, intree.Plugin("Stamper", pods, made(p)), nil).Mutate(t.Context(), ar)
}

func TestAdmitMutates(t *testing.T) {
	ar := newPod(t, "ns")
	resp := admitting(t, ar, func(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
		a.GetObject().(*corev1.Pod).Annotations = map[string]string{"stamped-by": a.GetUserInfo().GetName()}
		return nil
	})
	if want := `[{"op":"add","path":"/metadata/annotations","value":{"stamped-by":""}}]`; !resp.Allowed || string(resp.Patch) != want {
		t.Errorf("Got allowed %v and patch %s, want %s", resp.Allowed, resp.Patch, want)
	}
}

func TestValidateDenies(t *testing.T) {
	p := &stamper{Handler: admission.NewHandler(admission.Create), validate: func(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
		return admission.NewForbidden(a, errors.New("not stamped"))
	}}
	resp := serve(t, admit.Deps{}, intree.Plugin("Stamper", pods, made(p)), nil).Validate(t.Context(), newPod(t, "ns"))
	if want := `pods "web-" is forbidden: not stamped`; resp.Allowed || resp.Result.Message != want || resp.Result.Code != 403 {
		t.Errorf("Got %+v, want a denial with %q", resp, want)
	}
}

// TestOnePhase adapts a plugin of both phases for one of them.
func TestOnePhase(t *testing.T) {
	p := intree.Plugin("Stamper", []admit.Rule{pods[0].In(admit.Validating)}, made(&stamper{Handler: admission.NewHandler(admission.Create)}))
	if s := serve(t, admit.Deps{}, p, nil); s.Mutate != nil || s.Validate == nil {
		t.Errorf("Got the halves %t and %t, want only the validating one", s.Mutate != nil, s.Validate != nil)
	}
}

func TestOperationsThatArePassedBy(t *testing.T) {
	ar := newPod(t, "ns")
	ar.Operation = admissionv1.Update
	resp := admitting(t, ar, func(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
		return errors.New("called")
	})
	if !resp.Allowed {
		t.Errorf("Got %+v, want it allowed: the plugin does not handle updates", resp.Result)
	}
}

func TestErrorsStayAsTheyAre(t *testing.T) {
	resp := admitting(t, newPod(t, "ns"), func(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
		return errors.New("cannot say")
	})
	if resp.Result.Code != 500 || resp.Result.Message != "plugin Stamper: cannot say" {
		t.Errorf("Got %+v, want code 500 and the plugin's words after its name", resp.Result)
	}
}

func TestAttributes(t *testing.T) {
	dryRun := true
	ar := newPod(t, "ns")
	ar.Name, ar.DryRun = "web-1", &dryRun
	ar.OldObject = raw(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
	ar.Options = raw(t, &metav1.CreateOptions{FieldManager: "m", FieldValidation: "Strict"})
	ar.UserInfo = authenticationv1.UserInfo{Username: "alice", UID: "7", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v", "w"}}}
	resp := admitting(t, ar, func(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
		got := []any{
			a.GetName(), a.GetNamespace(), a.GetResource().String(), a.GetKind().String(), a.GetSubresource(), a.GetOperation(), a.IsDryRun(),
			a.GetObject().(*corev1.Pod).GenerateName, a.GetOldObject().(*corev1.Pod).Name, a.GetUserInfo(),
			a.GetOperationOptions(), a.GetReinvocationContext().IsReinvoke(),
		}
		want := []any{
			"web-1", "ns", "/v1, Resource=pods", "/v1, Kind=Pod", "", admission.Create, true, "web-", "old",
			user.Info(&user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v", "w"}}}),
			runtime.Object(&metav1.CreateOptions{FieldManager: "m", FieldValidation: "Strict"}), false,
		}
		if diff := cmp.Diff(got, want); diff != "" {
			return fmt.Errorf("got other attributes (-got +want):\n%s", diff)
		}
		a.GetReinvocationContext().SetValue("P", 1)
		if a.GetReinvocationContext().Value("P") != 1 {
			return errors.New("the reinvocation context forgot a value")
		}
		if gvk, _, err := o.GetObjectTyper().ObjectKinds(a.GetObject()); err != nil || gvk[0] != a.GetKind() {
			return fmt.Errorf("got the kinds %v (%w), want that of the request", gvk, err)
		}
		return nil
	})
	if !resp.Allowed {
		t.Error(resp.Result.Message)
	}
}

func TestAttributesOfRequestsWithoutObjects(t *testing.T) {
	remove := newPod(t, "ns")
	remove.Operation, remove.Object, remove.OldObject = admissionv1.Delete, runtime.RawExtension{}, remove.Object
	remove.Options = raw(t, metav1.NewDeleteOptions(3))
	exec := newPod(t, "ns")
	exec.Operation, exec.SubResource, exec.Kind.Kind = admissionv1.Connect, "exec", "PodExecOptions"
	exec.Object = raw(t, &corev1.PodExecOptions{Stdin: true})
	for _, ar := range []*admissionv1.AdmissionRequest{remove, exec} {
		resp := admitting(t, ar, func(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
			options, isDelete := a.GetOperationOptions().(*metav1.DeleteOptions)
			execOptions, isExec := a.GetObject().(*corev1.PodExecOptions)
			switch {
			case a.GetOperation() == admission.Delete && a.GetObject() == nil && a.GetOldObject() != nil && isDelete && *options.GracePeriodSeconds == 3:
			case a.GetOperation() == admission.Connect && isExec && execOptions.Stdin && a.GetOldObject() == nil && a.GetOperationOptions() == nil:
			default:
				return fmt.Errorf("got object %v, old %v, options %v", a.GetObject(), a.GetOldObject(), a.GetOperationOptions())
			}
			return nil
		})
		if !resp.Allowed {
			t.Errorf("%s: %s", ar.Operation, resp.Result.Message)
		}
	}
}

func TestAnnotationsAndWarnings(t *testing.T) {
	resp := admitting(t, newPod(t, "ns"), func(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() { _ = a.AddAnnotation(fmt.Sprintf("stamper.example.com/n%d", i), "x") })
			all.Go(func() { warning.AddWarning(ctx, "", "100%") })
		}
		all.Wait()
		return errors.Join(
			a.AddAnnotationWithLevel("stamper.example.com/request", "secret", auditinternal.LevelRequest),
			wantError("a key without a domain", a.AddAnnotation("n", "x")),
			wantError("another value", a.AddAnnotation("stamper.example.com/n0", "y")),
			a.AddAnnotation("stamper.example.com/n0", "x"),
		)
	})
	if !resp.Allowed {
		t.Fatal(resp.Result.Message)
	}
	wantAnnotations, wantWarnings := map[string]string{}, []string{}
	for i := range 8 {
		wantAnnotations[fmt.Sprint("n", i)] = "x"
		wantWarnings = append(wantWarnings, "100%")
	}
	if diff := cmp.Diff(resp.AuditAnnotations, wantAnnotations) + cmp.Diff(resp.Warnings, wantWarnings); diff != "" {
		t.Errorf("Got others (-got +want):\n%s", diff)
	}
}

func wantError(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%s was taken", what)
	}
	return nil
}

func TestConfiguration(t *testing.T) {
	for name, config := range map[string][]byte{"none": nil, "empty": {}, "some": []byte("a: 1")} {
		var got []byte
		none := false
		_, err := intree.Plugin("P", pods, func(r io.Reader) (admission.Interface, error) {
			if none = r == nil; !none {
				got, _ = io.ReadAll(r)
			}
			return &stamper{}, nil
		}).New(admit.Deps{}, config)
		if err != nil || none != (config == nil) || string(got) != string(config) {
			t.Errorf("%s: got %q, nil: %v, error %v", name, got, none, err)
		}
	}
}
