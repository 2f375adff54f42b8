package admissions

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/edges"
	"github.com/postern-dev/postern/internal/proportion"
	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/internal/seed"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

const (
	// parts is the ratio of the sizes that are compared.
	parts = 16
	// maxTimes bounds the work for a large object as a multiple of the work for its parts. Work in proportion to the size is
	// about 1, more with the misses of a cache. Work that grows with the square is 16.
	maxTimes = 4
	// fullSize is the number of comparisons with the largest objects.
	fullSize = 300
)

// TestWorkInProportion makes lists of the objects of the cases long, in one list at a time, and requires work in proportion
// to the size of the object: a user who may create the object must not be able to use up the time of a request.
func TestWorkInProportion(t *testing.T) {
	p := newComparison(t, 100_000)
	for _, x := range p.examples() {
		if !p.isNew(x.m.Name, x.name) {
			continue
		}
		for _, l := range edges.Lists(x.object) {
			if l.Used && p.isNew(x.m.Name, l.Path) {
				p.compare(x, l, nil)
			}
		}
	}
	for _, m := range members() {
		if why := notStretched()[m.Name]; (p.compared[m.Name] == 0) != (why != "") {
			t.Errorf("%s: compared %d lists, and the reason for none is %q", m.Name, p.compared[m.Name], why)
		}
	}
}

// notStretched returns the plugins without a case of one request for an object with a list, and why they have none.
func notStretched() map[string]string {
	const noList = "the objects of its cases have no list"
	return map[string]string{
		"ClusterTrustBundleAttest": noList,
		"EventRateLimit":           "each of its cases has several requests",
		"NamespaceAutoProvision":   noList,
		"NamespaceLifecycle":       noList,
		"TaintNodesByCondition":    noList,
	}
}

// TestWorkInProportionAtFullSize compares the largest objects for some of all lists, also of fields that the plugin does not
// read, and for a long list beside a long text.
func TestWorkInProportionAtFullSize(t *testing.T) {
	ring.Second(t, "two minutes of one processor")
	p := newComparison(t, 1_400_000)
	var all []func()
	for _, x := range p.examples() {
		texts := edges.Texts(x.object)
		for _, l := range edges.Lists(x.object) {
			if l.Used && p.isNew(x.m.Name, x.name, l.String()) || p.isNew(x.resource, l.String()) {
				all = append(all, func() { p.compare(x, l, nil) })
			}
			for _, text := range texts {
				if l.Used && p.isNew(x.m.Name, x.resource, l.Path, text.Path) {
					all = append(all, func() { p.compare(x, l, &text) })
				}
			}
		}
	}
	for _, i := range seed.Chance(t).Perm(len(all))[:fullSize] {
		all[i]()
	}
	n := 0
	for _, compared := range p.compared {
		n += compared
	}
	if n < fullSize/2 {
		t.Errorf("Compared %d lists, want most", n)
	}
}

// comparison compares the work for objects of two sizes.
type comparison struct {
	*testing.T
	bytes int
	seen  map[string]bool
	// compared counts the comparisons of each plugin.
	compared map[string]int
}

func newComparison(t *testing.T, bytes int) *comparison {
	t.Helper()
	// Collecting garbage takes as long as the process has other objects.
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(1<<30)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	return &comparison{T: t, bytes: bytes, seen: map[string]bool{}, compared: map[string]int{}}
}

// example is a case with its object: see admittest.Case.Example.
type example struct {
	m        member
	c        *admittest.Case
	object   apiruntime.Object
	resource string
	// name is equal for examples of which one is enough.
	name string
}

// examples returns the cases with an object that can be changed.
func (p *comparison) examples() (out []*example) {
	p.Helper()
	for _, m := range members() {
		for _, c := range m.cases(p.T) {
			object, err := c.Example()
			if err != nil {
				p.Fatal(err)
			}
			if object == nil {
				continue
			}
			ar, err := c.Steps[0].Request.Admission()
			if err != nil {
				p.Fatal(err)
			}
			resource := fmt.Sprint(ar.Resource, ar.SubResource)
			out = append(out, &example{m: m, c: c, object: object, resource: resource, name: fmt.Sprint(resource, ar.Operation, *c.Steps[0].Want.Allowed)})
		}
	}
	return out
}

// isNew reports whether it is called for the first time with the names.
func (p *comparison) isNew(names ...string) bool {
	key := strings.Join(names, "\n")
	defer func() { p.seen[key] = true }()
	return !p.seen[key]
}

// compare compares the work for an object with a long list, and a long text if there is one, with that for the same object
// with both 16 times as short.
func (p *comparison) compare(x *example, l edges.List, text *edges.Text) {
	p.Helper()
	withText, where := func(object apiruntime.Object, _ int) apiruntime.Object { return object }, l.String()
	if text != nil {
		withText = func(object apiruntime.Object, bytes int) apiruntime.Object { return text.Make(object, bytes) }
		where += " beside a long " + text.Path
	}
	n := l.Fit(withText(x.object, p.bytes/2), p.bytes)
	if n < 10*parts {
		return // such as a list of texts that are long in the example
	}
	request := func(part int) *admissionv1.AdmissionRequest {
		return x.request(p.T, func(object apiruntime.Object) apiruntime.Object {
			return l.Make(withText(object, p.bytes/2/part), n/part)
		})
	}
	large, small := request(1), request(parts)
	service, stop := x.serve(p.T)
	defer stop()
	p.compared[x.m.Name]++
	what := fmt.Sprintf("%s, case %s, %d items in %s", x.m.Name, x.c.Name(), n, where)
	proportion.Check(p.T, what, maxTimes, func() { send(p.T, service, large) }, parts, func() { send(p.T, service, small) })
}

// request returns the request of the case with its objects changed.
func (x *example) request(t *testing.T, change func(apiruntime.Object) apiruntime.Object) *admissionv1.AdmissionRequest {
	t.Helper()
	r := x.c.Steps[0].Request
	for _, raw := range []*json.RawMessage{&r.Object, &r.OldObject} {
		if len(*raw) == 0 {
			continue
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(*raw, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if *raw, err = json.Marshal(change(object)); err != nil {
			t.Fatal(err)
		}
	}
	ar, err := r.Admission()
	if err != nil {
		t.Fatal(err)
	}
	return ar
}

// send sends the request to both phases.
func send(t *testing.T, s router.AdmissionService, ar *admissionv1.AdmissionRequest) {
	t.Helper()
	for _, f := range []router.AdmitFunc{s.Mutate, s.Validate} {
		if f == nil {
			continue
		}
		checkDecided(t, answer(t, f, ar))
	}
}

// checkDecided fails the test if the plugin did not look at the whole object.
func checkDecided(t *testing.T, resp *admissionv1.AdmissionResponse) {
	t.Helper()
	if status := resp.Result; status != nil && (status.Code == http.StatusRequestEntityTooLarge || status.Code >= http.StatusInternalServerError) {
		t.Errorf("The request was not decided, so that its work says nothing: %.300s", status.Message)
	}
}

// serve returns the plugin in the cluster of the case, and a func that stops it.
func (x *example) serve(t *testing.T) (router.AdmissionService, func()) {
	t.Helper()
	s := serveCase(t, x.m, x.c, nil)
	s.sync(t)
	return s.AdmissionService, s.stop
}
