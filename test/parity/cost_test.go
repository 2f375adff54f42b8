package parity_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/postern-dev/postern/internal/conditions"
	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

const (
	// largest is the size of the largest object that etcd stores.
	largest = 1_500_000
	// maxCostShare bounds the part of the API server's cost budget that one webhook may use for one request.
	maxCostShare = 0.75
	// maxTimes bounds the time of the conditions as a multiple of the time to decode the objects, which the API server
	// spends anyhow. A loop that is quadratic in the number of items takes hundreds of times as long.
	maxTimes = 10
)

// TestCostOfTheLargestObjects evaluates the conditions of every plugin for the largest object of each shape: a
// list, and a map, at every path that a condition reads. If a condition exceeds the budget, the API server denies
// the request, or admits it by the failure policy. With a slow condition, a user who may create the object can
// exhaust the CPU of the API server.
func TestCostOfTheLargestObjects(t *testing.T) {
	ring.Second(t, "a minute of both processors")
	done := map[string]bool{}
	for _, e := range entries(t) {
		if len(e.Steps) == 0 || done[e.Plugin.Name] {
			continue
		}
		done[e.Plugin.Name] = true
		t.Run(e.Plugin.Name, func(t *testing.T) {
			s := serve(t, e)
			defer s.Close()
			for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
				for _, w := range s.Webhooks[phase] {
					costOf(t, s, w)
				}
			}
		})
	}
	if len(done) < 30 {
		t.Errorf("Got %d plugins, want all", len(done))
	}
}

var readPath = regexp.MustCompile(`\b(?:object|oldObject)((?:\.[a-zA-Z]+)+)`)

// costOf evaluates a webhook for the shapes of each of its resources.
func costOf(t *testing.T, s *admittest.Server, w *conditions.Webhook) {
	t.Helper()
	paths := map[string]bool{}
	for _, c := range w.Conditions {
		for _, m := range readPath.FindAllStringSubmatch(c.Expression, -1) {
			paths[strings.TrimPrefix(m[1], ".")] = true
		}
	}
	for path := range paths {
		for shape, value := range shapes() {
			big := decodeBig(t, bigObject(path, value))
			for _, rule := range w.Rules {
				for _, resource := range rule.Resources {
					where := fmt.Sprintf("%s, %s, a %s of %d bytes at %s", w.Name, resource, shape, len(value), path)
					big.check(t, evaluation(t, s, w, rule, resource, big), where)
				}
			}
		}
	}
}

// big is a large object. It is decoded once for all resources, because that takes longer than the evaluations.
type big struct {
	object  runtime.Object
	decoded time.Duration
}

func decodeBig(t *testing.T, doc string) big {
	t.Helper()
	start := time.Now()
	object, err := conditions.Decode([]byte(doc))
	if err != nil {
		t.Fatalf("Decoding the object: %v", err)
	}
	return big{object, time.Since(start)}
}

func (b big) check(t *testing.T, r result, where string) {
	t.Helper()
	if r.over {
		t.Errorf("%s: the conditions exceed the budget", where)
	}
	if share := float64(r.cost) / conditions.MaxCost; share > maxCostShare {
		t.Errorf("%s: the conditions cost %.2f of the budget, want at most %.2f", where, share, maxCostShare)
	}
	if decoded := time.Duration(r.objects) * b.decoded; r.took > maxTimes*decoded {
		t.Errorf("%s: the conditions take %v, want at most %d times the %v of decoding the objects", where, r.took, maxTimes, decoded)
	}
}

// shapes returns the largest list and the largest map.
func shapes() map[string]string {
	var labels strings.Builder
	for i := 0; labels.Len() < largest-16; i++ {
		if i > 0 {
			labels.WriteByte(',')
		}
		fmt.Fprintf(&labels, `"%d":""`, i)
	}
	return map[string]string{"list": "[{}" + strings.Repeat(",{}", largest/3-1) + "]", "map": "{" + labels.String() + "}"}
}

// bigObject returns an object of no known kind, so that any value may be at any path.
func bigObject(path, value string) string {
	names := strings.Split(path, ".")
	return `{"apiVersion":"big/v1","kind":"Big","` + strings.Join(names, `":{"`) + `":` + value + strings.Repeat("}", len(names))
}

// result is the outcome of one evaluation.
type result struct {
	objects int // in the request
	took    time.Duration
	cost    int64
	over    bool
}

// evaluation evaluates the conditions for requests of a node, because most conditions check nodes. It ignores
// errors, such as errors for values of a wrong type.
func evaluation(t *testing.T, s *admittest.Server, w *conditions.Webhook, rule admissionregistrationv1.RuleWithOperations, resource string, b big) result {
	t.Helper()
	main, sub, _ := strings.Cut(strings.ReplaceAll(resource, "*", "things"), "/")
	operation := admissionv1.Update
	if !slices.Contains(rule.Operations, admissionregistrationv1.Update) {
		operation = admissionv1.Operation(rule.Operations[0])
	}
	ar := &admissionv1.AdmissionRequest{
		UID: "u", Operation: operation, Name: "x", Namespace: "shop", SubResource: sub,
		Kind:     metav1.GroupVersionKind{Group: "big", Version: "v1", Kind: "Big"},
		Resource: metav1.GroupVersionResource{Group: strings.ReplaceAll(rule.APIGroups[0], "*", "big"), Version: rule.APIVersions[0], Resource: main},
		UserInfo: authenticationv1.UserInfo{Username: "system:node:x", Groups: []string{"system:nodes"}},
	}
	if *rule.Scope == admissionregistrationv1.ClusterScope {
		ar.Namespace = ""
	}
	var object, old runtime.Object
	var out result
	if operation != admissionv1.Delete {
		object = b.object
		out.objects++
	}
	if operation != admissionv1.Create {
		old = b.object
		out.objects++
	}
	r, err := conditions.NewRequestOf(ar, object, old)
	if err != nil {
		t.Fatalf("Making the request: %v", err)
	}
	for i := range 3 {
		start := time.Now()
		matched, err := w.Match(t.Context(), r, s.Authorizer())
		if took := time.Since(start); i == 0 || took < out.took {
			out.took = took
		}
		out.cost, out.over = matched.Cost, err != nil && strings.Contains(err.Error(), "budget")
		if out.took < 100*time.Millisecond && i == 0 {
			break
		}
	}
	return out
}
