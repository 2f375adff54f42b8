package twoservers

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ofInTree returns the expected answer of the in-tree server.
func (s *step) ofInTree() want {
	w := s.Want
	if s.Differs == nil {
		return w
	}
	d := s.Differs.InTree
	set(&w.Allowed, d.Allowed)
	set(&w.Code, d.Code)
	set(&w.Reason, d.Reason)
	set(&w.Message, d.Message)
	set(&w.Warnings, d.Warnings)
	if len(d.Object) > 0 {
		w.Object = runtime.DeepCopyJSON(w.Object)
		for path, value := range d.Object {
			// SetNestedField cannot fail for values that are decoded from JSON. If it failed, the comparison would
			// fail too.
			_ = unstructured.SetNestedField(w.Object, value, strings.Split(path, ".")...)
		}
	}
	return w
}

func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

// check returns an error that describes how the answer differs from the expected answer.
func (w want) check(a answer) error {
	if a.allowed() != w.Allowed || !w.Allowed && (a.code != w.Code || a.reason != w.Reason || !w.says(a.message)) {
		return fmt.Errorf("got %s, want %s", verdict(a.code, a.reason, a.message), verdict(w.Code, w.Reason, w.Message))
	}
	if !slices.Equal(a.warnings, w.Warnings) {
		return fmt.Errorf("got the warnings %q, want %q", a.warnings, w.Warnings)
	}
	if w.Object != nil && !holds(a.object, w.Object) {
		return fmt.Errorf("got the object %s, want %s in it", text(a.object), text(w.Object))
	}
	return nil
}

// says reports whether the message is the expected message. If the expected message ends with "…", the message must
// only start with the text before it, because the API server may append all values that it has compared.
func (w want) says(message string) bool {
	if start, ok := strings.CutSuffix(w.Message, "…"); ok {
		return strings.HasPrefix(message, start)
	}
	return message == w.Message
}

func verdict(code int, reason, message string) string {
	if message == "" {
		return "allowed"
	}
	return fmt.Sprintf("%d %s %q", code, reason, message)
}

// compare returns an error for each unexpected difference between the answers of the two servers, and for each
// expected difference that does not occur.
func (s *step) compare(inTree, postern answer) error {
	d := difference{}
	if s.Differs != nil {
		d = *s.Differs
	}
	field := func(name string, differs bool, a, b any) error {
		diff := cmp.Diff(a, b)
		switch {
		case differs && diff == "":
			return fmt.Errorf("the %s does not differ any more: both have %s", name, text(a))
		case !differs && diff != "":
			return fmt.Errorf("the %s differs (- in-tree, + Postern):\n%s", name, diff)
		}
		return nil
	}
	if d.InTree.Allowed != nil {
		// One answer is a Status and the other one is an object, so no other field can be compared.
		return field("verdict", true, inTree.allowed(), postern.allowed())
	}
	errs := []error{
		field("code", d.InTree.Code != nil, inTree.code, postern.code),
		field("reason", d.InTree.Reason != nil, inTree.reason, postern.reason),
		field("message", d.InTree.Message != nil, inTree.message, postern.message),
		field("list of warnings", d.InTree.Warnings != nil, inTree.warnings, postern.warnings),
		field("details", d.InTree.Details != nil, inTree.details, postern.details),
	}
	if want := d.InTree.Details; want != nil && !reflect.DeepEqual(inTree.details, *want) {
		errs = append(errs, fmt.Errorf("the details in-tree are %s, want %s", text(inTree.details), text(*want)))
	}
	for path, value := range d.InTree.Object {
		fields := strings.Split(path, ".")
		a, _, _ := unstructured.NestedFieldNoCopy(inTree.object, fields...)
		b, _, _ := unstructured.NestedFieldNoCopy(postern.object, fields...)
		if !reflect.DeepEqual(a, value) {
			errs = append(errs, fmt.Errorf("%s in-tree is %s, want %s", path, text(a), text(value)))
		}
		errs = append(errs, field(path, true, a, b))
		unstructured.RemoveNestedField(inTree.object, fields...)
		unstructured.RemoveNestedField(postern.object, fields...)
	}
	return errors.Join(append(errs, field("object", false, inTree.object, postern.object))...)
}
