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

// long is a request with something long that plugins add to, or of which they make more.
type long struct {
	what    string
	service router.AdmissionService
	stop    func()
	request *admissionv1.AdmissionRequest
	// mutating and validating are the least that is held for them, in KiB.
	mutating, validating int64
}

// longRequests returns requests whose memory must be held, or else a few of them at the same time use up the memory of the
// process.
func longRequests(t *testing.T) []long {
	t.Helper()
	return slices.Concat(longLists(t), longAnnotations(t), manyPresets(t))
}

// longLists makes a list of the object of a case long.
func longLists(t *testing.T) (out []long) {
	t.Helper()
	type row struct {
		list                 string
		bytes                int
		mutating, validating int64
	}
	rows := map[string]row{
		"LimitRanger, create-last-item-wins":                                     {"spec.containers", 100_000, 2_000, 0},
		"PodSecurityPolicy, create-annotated-policy-is-tried-first":              {"spec.containers", 100_000, 3_400, 1_100},
		"PodSecurityPolicy, update-ephemeral-container-gets-the-defaults":        {"spec.containers", 100_000, 3_400, 1_100},
		"PodTolerationRestriction, create-covered-tolerations-are-removed":       {"spec.tolerations", 300_000, 5_000, 0},
		"RuntimeClass, create-class-without-tolerations-merges-those-of-the-pod": {"spec.tolerations", 300_000, 5_000, 0},
	}
	p := newComparison(t, 0)
	for _, x := range p.examples() {
		key := x.m.Name + ", " + x.c.Name()
		r, ok := rows[key]
		if !ok {
			continue
		}
		delete(rows, key)
		lists := edges.Lists(x.object)
		i := slices.IndexFunc(lists, func(l edges.List) bool { return l.Path == r.list })
		if i < 0 {
			t.Fatalf("%s: no list %s", key, r.list)
		}
		p.bytes = r.bytes
		l := long{mutating: r.mutating, validating: r.validating}
		l.what, l.request = p.lengthen(x, lists[i])
		l.service, l.stop = x.serve(t)
		out = append(out, l)
	}
	if len(rows) > 0 {
		t.Errorf("Did not find %v", rows)
	}
	return out
}

// longAnnotations has a small pod in a namespace whose annotations, of which a Namespace may have 256 KiB, are decoded for each
// request.
func longAnnotations(t *testing.T) (out []long) {
	t.Helper()
	const limit = 255 << 10
	many := func(format string) string {
		var out strings.Builder
		for i := 0; out.Len() < limit; i++ {
			fmt.Fprintf(&out, format, i)
		}
		return strings.TrimSuffix(out.String(), ",")
	}
	for _, tc := range []struct {
		plugin, annotation, text string
		mutating, validating     int64
	}{
		{"PodTolerationRestriction", "scheduler.alpha.kubernetes.io/defaultTolerations", "[" + many(`{"key":"a%d"},`) + "]", 12_000, 0},
		{"PodTolerationRestriction", "scheduler.alpha.kubernetes.io/tolerationsWhitelist", "[" + many(`{"key":"a%d"},`) + "]", 6_000, 6_000},
		{"PodTolerationRestriction", "scheduler.alpha.kubernetes.io/tolerationsWhitelist", "[{}" + strings.Repeat(",{}", limit/3) + "]", 28_000, 28_000},
		{"PodTolerationRestriction", "scheduler.alpha.kubernetes.io/defaultTolerations", "[" + strings.Repeat("{},", limit/3) + `{"key":1}]`, 8_000, 0},
		{"PodNodeSelector", "scheduler.alpha.kubernetes.io/node-selector", many("a%d=,"), 4_000, 2_000},
	} {
		namespace := fmt.Sprintf("- {apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {%s: '%s'}}}", tc.annotation, tc.text)
		out = append(out, longFor(t, tc.plugin, tc.annotation, namespace, tc.mutating, tc.validating))
	}
	return out
}

// manyPresets has a small pod in a namespace whose PodPresets add as much as a pod can be stored with.
func manyPresets(t *testing.T) (out []long) {
	t.Helper()
	for field, tc := range map[string]struct {
		presets, items int
		// item is the format of an item with its number.
		item string
		// mutating is the least that is held, in KiB.
		mutating int64
	}{
		"env":          {800, 130, `{"name":"V%[1]d"}`, 34_000},
		"volumes":      {3_500, 20, `{"name":"v%[1]d","emptyDir":{}}`, 35_000},
		"volumeMounts": {1_000, 50, `{"name":"v%[1]d","mountPath":"/%[1]d"}`, 18_000},
	} {
		presets := make([]string, tc.presets)
		for i := range presets {
			items := make([]string, tc.items)
			for n := range items {
				items[n] = fmt.Sprintf(tc.item, i*tc.items+n)
			}
			presets[i] = fmt.Sprintf(`- {"apiVersion":"settings.postern.dev/v1alpha1","kind":"PodPreset","metadata":{"name":"p%d","namespace":"shop"},"spec":{%q:[%s]}}`,
				i, field, strings.Join(items, ","))
		}
		out = append(out, longFor(t, "PodPreset", field, strings.Join(presets, "\n"), tc.mutating, 0))
	}
	return out
}

// longFor returns the creation of a small pod in a cluster.
func longFor(t *testing.T, plugin, what, cluster string, mutating, validating int64) long {
	t.Helper()
	c, err := admittest.Parse(fmt.Appendf(nil, `# Something in the cluster is long.
cluster:
%s
request:
  operation: CREATE
  object:
    apiVersion: v1
    kind: Pod
    metadata: {name: web, namespace: shop}
    spec: {containers: [{name: app, image: "app:1"}], tolerations: [{key: disk, operator: Exists}]}
want: {allowed: true}
`, cluster))
	if err != nil {
		t.Fatal(err)
	}
	ms := members()
	m := ms[slices.IndexFunc(ms, func(m member) bool { return m.Name == plugin })]
	l := long{what: plugin + ", " + what, mutating: mutating, validating: validating}
	if l.request, err = c.Steps[0].Request.Admission(); err != nil {
		t.Fatal(err)
	}
	l.service, l.stop = (&example{m: m, c: c}).serve(t)
	return l
}

// TestMemoryIsHeld looks at what is held for long requests.
func TestMemoryIsHeld(t *testing.T) {
	for _, l := range longRequests(t) {
		for _, half := range []struct {
			phase string
			f     router.AdmitFunc
			want  int64
		}{{"mutating", l.service.Mutate, l.mutating}, {"validating", l.service.Validate, l.validating}} {
			if half.f == nil {
				continue
			}
			resp, held := heldFor(t, half.f, l.request.DeepCopy())
			checkDecided(t, resp)
			if held>>10 < half.want {
				t.Errorf("%s, %s: held %d KiB, want at least %d", l.what, half.phase, held>>10, half.want)
			}
		}
		l.stop()
	}
}

// TestMemoryOfLongRequests measures that they take no more than is reserved and held.
func TestMemoryOfLongRequests(t *testing.T) {
	ring.Second(t, "it measures memory, which takes a quiet machine")
	for _, l := range longRequests(t) {
		checkMemory(t, l.what, l.service, l.request)
		l.stop()
	}
}

// TestMemoryOfMendedRequests measures the same where denials are reconsidered, which takes more copies of the object.
func TestMemoryOfMendedRequests(t *testing.T) {
	ring.Second(t, "it measures memory, which takes a quiet machine")
	p := newComparison(t, 400_000)
	mended := 0
	p.eachList(func(x *example, l edges.List) {
		if !slices.Contains([]string{"AlwaysPullImages", "LimitRanger", "PodSecurityPolicy", "RuntimeClass"}, x.m.Name) {
			return
		}
		what, ar := p.lengthen(x, l)
		s := serveCase(t, x.m, x.c, func() bool { return true })
		defer s.stop()
		s.sync(t)
		if s.Validate != nil && answer(t, s.Validate, ar).AuditAnnotations["admitted-without-changes-of"] != "" {
			mended++
			checkMemory(t, what, router.AdmissionService{Validate: s.Validate, Objects: s.Objects}, ar)
		}
	})
	if mended < 10 {
		t.Errorf("Mended %d requests, want some", mended)
	}
}

// TestMemoryForEachList measures the same for all plugins and for all lists that their cases have.
func TestMemoryForEachList(t *testing.T) {
	ring.Second(t, "it measures memory, which takes a quiet machine, for minutes")
	p := newComparison(t, 400_000)
	p.eachList(func(x *example, l edges.List) {
		p.compared[x.m.Name]++
		what, ar := p.lengthen(x, l)
		service, stop := x.serve(t)
		defer stop()
		checkMemory(t, what, service, ar)
	})
	if n := len(p.compared); n < 20 {
		t.Errorf("Measured %d plugins, want most", n)
	}
}

// eachList calls f for one list of each kind that the objects of the cases have.
func (p *comparison) eachList(f func(*example, edges.List)) {
	p.Helper()
	for _, x := range p.examples() {
		for _, l := range edges.Lists(x.object) {
			if !l.Used || !p.isNew(x.m.Name, x.name, l.Path) || l.Fit(x.object, p.bytes) < 100 {
				continue // Such as a list of texts that are long in the example.
			}
			f(x, l)
		}
	}
}

// lengthen returns the request for the object with a long list.
func (p *comparison) lengthen(x *example, l edges.List) (what string, ar *admissionv1.AdmissionRequest) {
	p.Helper()
	n := l.Fit(x.object, p.bytes)
	ar = x.request(p.T, func(object apiruntime.Object) apiruntime.Object { return l.Make(object, n) })
	return fmt.Sprintf("%s, case %s, %d items in %s", x.m.Name, x.c.Name(), n, l), ar
}

// heldFor returns the answer to a request, and the most that is held for it, in bytes.
func heldFor(t *testing.T, f router.AdmitFunc, ar *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, int64) {
	t.Helper()
	var a account
	ctx, cancel := context.WithCancel(reads.NewContext(t.Context(), &a))
	defer cancel() // PodPreset holds memory until the request ends.
	return f(ctx, ar), a.most.Load()
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
		took := heap.Peak(func() { resp, held = heldFor(t, f, ar) }, limit)
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
