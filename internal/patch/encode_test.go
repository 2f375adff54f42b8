package patch

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/postern-dev/postern/internal/jsontype"
)

func encodingOf(v reflect.Value) ([]byte, error) {
	return appendJSON(jsontype.Of(v.Type()), nil, addressed(v))
}

func TestEncodingIsThatOfPackageJSON(t *testing.T) {
	for _, v := range []any{
		"", "plain", `a"b\c`, "<a> & b", "line\n", "\u2028 é \xff", "\x7f", corev1.PullAlways, true, false,
		int32(-1), int64(math.MinInt64), int8(1), 1.5, json.Number("1.50"), intstr.FromString("25%"), resource.MustParse("1Gi"),
		metav1.NewTime(time.Unix(0, 0)),
		metav1.Duration{Duration: time.Second},
		[]string{"<"},
		map[string]string{"a": "b"},
		corev1.Container{Name: "<"},
		&corev1.Container{},
		[]corev1.Toleration(nil),
		[]corev1.Toleration{},
		[]byte("a"), (*corev1.Container)(nil),
		struct {
			Quoted int64 `json:"quoted,string"`
		}{1},
		struct {
			Odd string `json:"<"`
		}{"a"},
		struct{ *corev1.Toleration }{&corev1.Toleration{Key: "k"}},
		struct {
			corev1.Toleration

			Zero  metav1.Time `json:"zero,omitzero"`
			Empty [0]int32    `json:"empty,omitempty"`
			Small int16       `json:"small,omitempty"`
			Text  *string     `json:"text,omitempty"`
			On    bool        `json:"on,omitempty"`
			Large uint64      `json:"large,omitempty"`
			Any   any         `json:"any,omitempty"`
		}{Large: math.MaxUint64},
	} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := encodingOf(reflect.ValueOf(v)); err != nil || string(got) != string(want) {
			t.Errorf("%T: got %s, error %v, want %s", v, got, err, want)
		}
	}
}

// TestEncodingOfEveryKind encodes random objects of every kind.
func TestEncodingOfEveryKind(t *testing.T) {
	forRandomObjects(t, func(c *chance, gvk schema.GroupVersionKind, _ string) {
		obj := c.fill(t, gvk)
		want := encoded(t, obj)
		if got, err := encodingOf(reflect.ValueOf(obj).Elem()); err != nil || string(got) != want {
			t.Errorf("Got %s, error %v, want %s", got, err, want)
		}
	})
}
