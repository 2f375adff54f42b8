package admissions

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/edges"
	"github.com/postern-dev/postern/internal/heap"
	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

const (
	// maxOver is how many times the memory that is held for a decision the decision may take. The rest of the process has
	// more than half of the memory, and the patch and short-lived garbage are not held.
	maxOver = 1.5
	// noiseBytes is what other parts of the process may take meanwhile.
	noiseBytes = 1 << 19
)

// TestMemoryIsHeld makes a list of the object of a case long, for plugins that add something to each item, or make something of
// the list. What they need must be held, or else a few requests at the same time use up the memory of the process.
func TestMemoryIsHeld(t *testing.T) {
	type long struct {
		list  string
		bytes int
	}
	wanted := map[string]long{
		"LimitRanger, create-last-item-wins":                                     {"spec.containers", 100_000},
		"PodSecurityPolicy, create-annotated-policy-is-tried-first":              {"spec.containers", 100_000},
		"PodSecurityPolicy, update-ephemeral-container-gets-the-defaults":        {"spec.containers", 100_000},
		"PodTolerationRestriction, create-covered-tolerations-are-removed":       {"spec.tolerations", 300_000},
		"RuntimeClass, create-class-without-tolerations-merges-those-of-the-pod": {"spec.tolerations", 300_000},
	}
	p := newComparison(t, 0)
	for _, x := range p.examples() {
		key := x.m.Name + ", " + x.c.Name()
		w, ok := wanted[key]
		if !ok {
			continue
		}
		lists := edges.Lists(x.object)
		i := slices.IndexFunc(lists, func(l edges.List) bool { return l.Path == w.list })
		if i < 0 {
			t.Fatalf("%s: no list %s", key, w.list)
		}
		p.bytes = w.bytes
		p.measure(x, lists[i])
		delete(wanted, key)
	}
	if len(wanted) > 0 {
		t.Errorf("Did not find %v", wanted)
	}
}

// TestMemoryIsHeldForEachList does so for all plugins and for all lists that their cases have.
func TestMemoryIsHeldForEachList(t *testing.T) {
	ring.Second(t, "minutes")
	p := newComparison(t, 400_000)
	for _, x := range p.examples() {
		for _, l := range edges.Lists(x.object) {
			if l.Used && p.isNew(x.m.Name, x.name, l.Path) {
				p.measure(x, l)
			}
		}
	}
	if n := len(p.compared); n < 20 {
		t.Errorf("Measured %d plugins, want most", n)
	}
}

// measure measures the memory for the object with a long list.
func (p *comparison) measure(x *example, l edges.List) {
	p.Helper()
	n := l.Fit(x.object, p.bytes)
	if n < 100 {
		return // such as a list of texts that are long in the example
	}
	ar := x.request(p.T, func(object apiruntime.Object) apiruntime.Object { return l.Make(object, n) })
	service, stop := x.serve(p.T)
	defer stop()
	p.compared[x.m.Name]++
	checkMemory(p.T, fmt.Sprintf("%s, case %s, %d items in %s", x.m.Name, x.c.Name(), n, l), service, ar)
}

// checkMemory fails the test if a phase takes more memory than is held for it.
func checkMemory(t *testing.T, what string, s router.AdmissionService, ar *admissionv1.AdmissionRequest) {
	t.Helper()
	for phase, f := range map[string]router.AdmitFunc{"mutating": s.Mutate, "validating": s.Validate} {
		if f == nil {
			continue
		}
		reserved, held := s.Objects.Weigh(ar), int64(0)
		limit := func() int64 { return int64(maxOver*float64(reserved+held)) + noiseBytes }
		var resp *admissionv1.AdmissionResponse
		took := heap.Peak(func() {
			var a account
			ctx, cancel := context.WithCancel(reads.NewContext(t.Context(), &a))
			defer cancel() // PodPreset holds memory until the request ends.
			resp, held = f(ctx, ar), a.most.Load()
		}, limit)
		checkDecided(t, resp)
		t.Logf("%s, %s: took %d MiB, reserved %d, held %d", what, phase, took>>20, reserved>>20, held>>20)
		if took > limit() {
			t.Errorf("%s, %s: took %d bytes, want at most %d: %d were reserved, and %d held", what, phase, took, limit(), reserved, held)
		}
	}
}

// account notes the most that is held at the same time.
type account struct {
	parent *account
	// held is what is held now. The funcs of one request may run at the same time.
	held, most atomic.Int64
}

func (a *account) Hold(_ context.Context, n int64) error {
	a.Add(n)
	return nil
}

func (a *account) Need(ctx context.Context, n int64) error { return a.Hold(ctx, n) }

func (a *account) Add(n int64) {
	if held := a.held.Add(n); held > a.most.Load() {
		a.most.Store(held)
	}
	if a.parent != nil {
		a.parent.Add(n)
	}
}

func (a *account) Open() (reads.Account, func()) {
	part := &account{parent: a}
	return part, func() { part.Add(-part.held.Load()) }
}

func (*account) Turn(context.Context) (end func(), err error) { return func() {}, nil }
func (*account) Call(context.Context) (end func(), err error) { return func() {}, nil }
func (*account) Queued()                                      {}
func (*account) Fits(int64) bool                              { return true }

// TestMemoryOfLongAnnotations has a small pod in a namespace whose annotations, of which a Namespace may have 256 KiB, are
// decoded for each request.
func TestMemoryOfLongAnnotations(t *testing.T) {
	const limit = 255 << 10
	long := func(format string) string {
		var out strings.Builder
		for i := 0; out.Len() < limit; i++ {
			fmt.Fprintf(&out, format, i)
		}
		return strings.TrimSuffix(out.String(), ",")
	}
	for _, tc := range []struct{ plugin, annotation, text string }{
		{"PodTolerationRestriction", "scheduler.alpha.kubernetes.io/defaultTolerations", "[" + long(`{"key":"a%d"},`) + "]"},
		{"PodTolerationRestriction", "scheduler.alpha.kubernetes.io/tolerationsWhitelist", "[" + long(`{"key":"a%d"},`) + "]"},
		{"PodTolerationRestriction", "scheduler.alpha.kubernetes.io/tolerationsWhitelist", "[{}" + strings.Repeat(",{}", limit/3) + "]"},
		{"PodTolerationRestriction", "scheduler.alpha.kubernetes.io/defaultTolerations", "[" + strings.Repeat("{},", limit/3) + `{"key":1}]`},
		{"PodNodeSelector", "scheduler.alpha.kubernetes.io/node-selector", long("a%d=,")},
	} {
		c, err := admittest.Parse(fmt.Appendf(nil, `# The annotation is long.
cluster:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {%s: '%s'}}}
request:
  operation: CREATE
  object:
    apiVersion: v1
    kind: Pod
    metadata: {name: web, namespace: shop}
    spec: {containers: [{name: app, image: "app:1"}], tolerations: [{key: disk, operator: Exists}]}
want: {allowed: true}
`, tc.annotation, tc.text))
		if err != nil {
			t.Fatal(err)
		}
		ms := members()
		m := ms[slices.IndexFunc(ms, func(m member) bool { return m.Name == tc.plugin })]
		ar, err := c.Steps[0].Request.Admission()
		if err != nil {
			t.Fatal(err)
		}
		service, stop := (&example{m: m, c: c}).serve(t)
		checkMemory(t, tc.plugin+", "+tc.annotation, service, ar)
		stop()
	}
}

// TestCertificateRequestsHoldMemory has no memory for the certificate requests of the cases.
func TestCertificateRequestsHoldMemory(t *testing.T) {
	without := map[string]bool{"CertificateSubjectRestriction": false, "NodeRestriction": false}
	for _, m := range members() {
		if _, ok := without[m.Name]; !ok {
			continue
		}
		for _, c := range m.cases(t) {
			for _, step := range c.Steps {
				ar, err := step.Request.Admission()
				if err != nil {
					t.Fatal(err)
				}
				if ar.Resource.Resource != "certificatesigningrequests" || step.Want.Allowed == nil || !*step.Want.Allowed {
					continue
				}
				service, stop := (&example{m: m, c: c}).serve(t)
				resp := service.Validate(reads.NewContext(t.Context(), &broke{}), ar)
				stop()
				if !resp.Allowed && resp.Result.Code == http.StatusInternalServerError && strings.HasSuffix(resp.Result.Message, reads.ErrHeld.Error()) {
					without[m.Name] = true
				}
			}
		}
	}
	for name, ok := range without {
		if !ok {
			t.Errorf("%s held no memory for any certificate request", name)
		}
	}
}

// broke is an account without memory.
type broke struct{ account }

func (*broke) Need(context.Context, int64) error { return reads.ErrHeld }

func (b *broke) Open() (reads.Account, func()) { return b, func() {} }
