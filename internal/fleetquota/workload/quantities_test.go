package workload_test

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/internal/fleetquota/workload"
)

// quantities returns JSON of a value of type t for each quantity in it. The value has only that quantity.
func quantities(t reflect.Type, quantity string, seen ...reflect.Type) []string {
	var out []string
	wrap := func(inner []string, before, after string) {
		for _, text := range inner {
			out = append(out, before+text+after)
		}
	}
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		return []string{strconv.Quote(quantity)}
	case slices.Contains(seen, t):
	case t.Kind() == reflect.Pointer:
		return quantities(t.Elem(), quantity, seen...)
	case t.Kind() == reflect.Slice:
		wrap(quantities(t.Elem(), quantity, seen...), "[", "]")
	case t.Kind() == reflect.Map:
		wrap(quantities(t.Elem(), quantity, seen...), `{"cpu":`, "}")
	case t.Kind() == reflect.Struct:
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			inner := quantities(field.Type, quantity, append(slices.Clone(seen), t)...)
			if name == "" {
				out = append(out, inner...)
				continue
			}
			wrap(inner, `{"`+name+`":`, "}")
		}
	}
	return out
}

// TestEnormousQuantities refuses custom resources with quantities that take seconds or hours to compute with, in all
// fields of a pod template that have quantities. API servers parse the quantities of pods, and not those of custom
// resources.
func TestEnormousQuantities(t *testing.T) {
	long := strings.Repeat("9", 100_000)
	for _, text := range []string{
		"1e1000000000", "1E+1000000000", "-1e1000000000", "0e1000000000", "1e-1000000000", "1234567890123456789012e1000000000", "1e99999999999999999999", long, "0." + long,
	} {
		templates := quantities(reflect.TypeFor[corev1.PodTemplateSpec](), text)
		if len(templates) < 10 {
			t.Fatalf("Got %d fields with quantities, want more", len(templates))
		}
		for _, template := range templates {
			at := time.Now()
			_, err := measure(t, workload.Settings{}, custom(1, "replicas"), "teams.example.com",
				`{"apiVersion":"example.com/v1","kind":"Team","metadata":{"name":"a"},"spec":{"groups":[{"template":`+template+`}]}}`)
			if !errors.Is(err, workload.ErrUnreadable) || len(err.Error()) > 300 {
				t.Errorf("%.300s: got %.300v, want %v", template, err, workload.ErrUnreadable)
			}
			if took := time.Since(at); took > 30*time.Second {
				t.Errorf("%.300s: took %v", template, took)
			}
		}
	}
}

// TestOrdinaryQuantities accepts all forms of quantities, and texts that look like enormous ones and are none.
func TestOrdinaryQuantities(t *testing.T) {
	for _, text := range []string{"1", "100m", "1e3", "1E3", "1e-3", "1E", "9E", "12.5Gi", "+3", "9223372036854775807", "1000000000000000000000", "0.000000001"} {
		w, err := measure(t, workload.Settings{}, custom(1, "replicas"), "teams.example.com", "{apiVersion: example.com/v1, kind: Team, metadata: {name: a}, spec: {groups: ["+
			"{template: {metadata: {labels: {requests: 1e1000000000, overhead: 1e1000000000}}, spec: {containers: [{name: a, env: [{name: limits, value: 1e1000000000}],"+
			" resources: {requests: {cpu: '"+text+"'}}}]}}}]}}")
		if err != nil {
			t.Errorf("%s: got %v", text, err)
			continue
		}
		if got, want := w.Usage[corev1.ResourceRequestsCPU], resource.MustParse(text); got.Cmp(want) != 0 {
			t.Errorf("Got %s, want %s", got.String(), text)
		}
	}
}
