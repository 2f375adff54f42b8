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
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestMarshalIsThatOfPackageJSON(t *testing.T) {
	for _, v := range []any{
		"", "plain", `a"b\c`, "<a> & b", "line\n", "\u2028 é \xff", "\x7f", corev1.PullAlways, true, false,
		int32(-1), int64(math.MinInt64), int8(1), 1.5, json.Number("1.50"), intstr.FromString("25%"), resource.MustParse("1Gi"),
		metav1.NewTime(time.Unix(0, 0)),
		metav1.Duration{Duration: time.Second},
		[]string{"<"},
		map[string]string{"a": "b"},
		corev1.Container{Name: "<"},
	} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := marshal(reflect.ValueOf(v)); err != nil || string(got) != string(want) {
			t.Errorf("%T: got %s, error %v, want %s", v, got, err, want)
		}
	}
}
