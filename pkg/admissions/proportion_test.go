package admissions

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/edges"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

const maxRatio = 20

func TestWorkInProportion(t *testing.T) {
	bytes, all := 1_400_000, !testing.Short()
	if testing.Short() {
		bytes = 350_000
	}
	if os.Getenv("SOME") != "" {
		all = false
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 << 30))
	seen := map[string]bool{}
	n := 0
	start := os.Getenv("START")
	for _, m := range members() {
		if start == m.Name {
			start = ""
		}
		if start != "" {
			continue
		}
		for _, c := range m.cases(t) {
			if len(c.Steps) != 1 || len(c.Errors) > 0 || len(c.Backend) > 0 || c.Steps[0].Want.Allowed == nil {
				continue
			}
			r := &c.Steps[0].Request
			ar, err := r.Admission()
			if err != nil {
				t.Fatal(err)
			}
			main := r.Object
			if r.Operation == admissionv1.Delete {
				main = r.OldObject
			}
			object, _, err := scheme.Codecs.UniversalDeserializer().Decode(main, nil, nil)
			if err != nil {
				continue
			}
			var s *router.AdmissionService
			for _, l := range edges.Lists(object) {
				if !l.Used && !all {
					continue
				}
				key := fmt.Sprint(m.Name, ar.Operation, ar.Resource, ar.SubResource, l, *c.Steps[0].Want.Allowed)
				if seen[key] {
					continue
				}
				seen[key] = true
				if s == nil {
					e, err := c.Environment()
					if err != nil {
						t.Fatal(err)
					}
					defer e.Close()
					service, err := c.Service(e, m.Plugin)
					if err != nil {
						t.Fatal(err)
					}
					if err := e.Sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					s = &service
				}
				n++
				size := l.Fit(object, bytes)
				if size < 80 {
					continue
				}
				start := time.Now()
				var took [2]time.Duration
				runtime.GC()
				small, large := l.Make(object, size/8), l.Make(object, size)
				for range 4 {
					a, b := cost(t, s, c, small), cost(t, s, c, large)
					if took[0] == 0 || a < took[0] {
						took[0] = a
					}
					if took[1] == 0 || b < took[1] {
						took[1] = b
					}
					if took[1] <= maxRatio*took[0] {
						break
					}
				}
				fmt.Println(time.Since(start), key, size, took)
				if took[1] > maxRatio*took[0] || took[1] > 500*time.Millisecond {
					fmt.Printf("BAD %s %s: %s: %d items: %v, %v: ratio %.1f\n", m.Name, c.Name(), l, size, took[0], took[1], float64(took[1])/float64(took[0]))
				}
			}
		}
	}
	t.Log(n)
}

func cost(t *testing.T, s *router.AdmissionService, c *admittest.Case, object apiruntime.Object) time.Duration {
	t.Helper()
	r := c.Steps[0].Request
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Object) > 0 {
		r.Object = raw
	}
	if len(r.OldObject) > 0 {
		r.OldObject = raw
	}
	ar, err := r.Admission()
	if err != nil {
		t.Fatal(err)
	}
	start := used()
	for _, f := range []router.AdmitFunc{s.Mutate, s.Validate} {
		if f == nil {
			continue
		}
		if resp := f(t.Context(), ar.DeepCopy()); resp == nil {
			t.Error("no")
		}
	}
	return used() - start
}

func used() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano())
}
