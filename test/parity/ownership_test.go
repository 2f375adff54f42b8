package parity_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/postern-dev/postern/internal/conditions"
	ownership "github.com/postern-dev/postern/pkg/admissions/ownership/ownerreferencespermissionenforcement"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/router"
)

const (
	// ownershipRounds is the number of random requests; ownershipSeed is the first seed.
	ownershipRounds = 200
	ownershipSeed   = 20160817
	// maxChecks is the number of access checks that fit into the cost budget of one expression.
	maxChecks = 2
)

// missingRight is the end of a denial that only Postern's plugin has: user, verb, resource, subresource, group, namespace, name.
var missingRight = regexp.MustCompile(`^: User "([^"]+)" cannot (update|delete) resource "([^"/]+)/?([^"]*)" in API group "([^"]*)" (?:at the cluster scope|in the namespace "([^"]+)")(?: \(name "(.+)"\))?$`)

// TestOwnershipAtRandom compares the plugin with kube-apiserver's plugin on random requests with random
// permissions, and checks that the API server calls for every request that would be denied.
func TestOwnershipAtRandom(t *testing.T) {
	called, denied := 0, 0
	for i := range ownershipRounds {
		r := rand.New(rand.NewPCG(ownershipSeed, uint64(i)))
		c := &admittest.Case{
			Cluster:   []json.RawMessage{encoded(t, object{"apiVersion": "settings.postern.dev/v1alpha1", "kind": "PodPreset", "metadata": object{"name": "a", "namespace": "shop"}})},
			Authorize: someRights(r), Steps: []admittest.Step{{Request: someRequest(t, r)}},
		}
		s, err := c.Serve(admittest.Context(t), ownership.Plugin)
		if err != nil {
			t.Fatalf("Serving: %v", err)
		}
		checks := &countedChecks{accessReviews: accessReviews{s.Environment}}
		ar := requestOf(t, &c.Steps[0].Request)
		match, err := conditions.Match(t.Context(), s.Webhooks[router.PhaseValidate], ar, checks)
		if err != nil {
			t.Errorf("Round %d: %v", i, err)
		}
		got, err := s.Play(t.Context(), c, &c.Steps[0].Request)
		s.Close()
		if err != nil {
			t.Fatalf("Playing round %d: %v", i, err)
		}
		upstream, err := newInTree(t, ownership.Plugin.Name, c)
		if err != nil {
			t.Fatalf("Making the plugin of kube-apiserver: %v", err)
		}
		want := upstream.play(t, c, ar)
		wrong := func(format string, args ...any) {
			t.Errorf("Round %d: %s: %s %s, before it was %s, rights %+v", i, fmt.Sprintf(format, args...), ar.Operation, ar.Object.Raw, ar.OldObject.Raw, c.Authorize)
		}
		added, same := strings.CutPrefix(got.Status.Message, want.Status.Message)
		if strings.HasSuffix(want.Status.Message, ", <nil>") {
			right := missingRight.FindStringSubmatch(added)
			same = same && right != nil
			if same && !grantHelps(t, c, right) {
				wrong("the right that is named is not the missing one: %s", added)
			}
		} else {
			same = same && added == ""
		}
		if got.Allowed != want.Allowed || !same {
			wrong("got allowed %t %q, want %t %q", got.Allowed, got.Status.Message, want.Allowed, want.Status.Message)
		}
		if !match.Called && !want.Allowed {
			wrong("the API server would not call for what is denied: %s", want.Status.Message)
		}
		if checks.n > maxChecks {
			wrong("the API server makes %d checks, want %d at most", checks.n, maxChecks)
		}
		if match.Called {
			called++
		}
		if !want.Allowed {
			denied++
		}
	}
	t.Logf("Of %d requests %d were denied, and %d called for", ownershipRounds, denied, called)
	if denied < ownershipRounds/10 || called > ownershipRounds-ownershipRounds/10 {
		t.Error("The requests are too much alike to say anything")
	}
}

// grantHelps grants the user the right that a denial names, plays the request again, and reports whether it is admitted or lacks
// another right.
func grantHelps(t *testing.T, c *admittest.Case, right []string) bool {
	t.Helper()
	granted := *c
	granted.Authorize = append([]admittest.Access{{
		User: right[1], Verb: right[2], Resource: right[3], Subresource: right[4], Group: right[5], Namespace: right[6], Name: right[7],
	}}, c.Authorize...)
	s, err := granted.Serve(admittest.Context(t), ownership.Plugin)
	if err != nil {
		t.Fatalf("Serving: %v", err)
	}
	defer s.Close()
	got, err := s.Play(t.Context(), &granted, &granted.Steps[0].Request)
	if err != nil {
		t.Fatalf("Playing a request again: %v", err)
	}
	return got.Allowed || !strings.HasSuffix(got.Status.Message, right[0])
}

// TestOwnershipAlwaysHasAVerdict evaluates the most expensive inputs of the condition. A condition that
// exceeds the cost budget fails, and the request fails with it.
func TestOwnershipAlwaysHasAVerdict(t *testing.T) {
	refs := func(prefix string, n int) []object {
		var out []object
		for i := range n {
			out = append(out, object{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": fmt.Sprint(prefix, i), "blockOwnerDeletion": true})
		}
		return out
	}
	long := strings.Repeat("u", 100-2)
	for name, tc := range map[string]struct {
		refs, old []object
		want      bool
	}{
		"many that are compared":           {refs(long, 30), append(refs(long, 29), refs("other", 1)...), false},
		"too many":                         {refs("", 31), nil, true},
		"too many before":                  {nil, refs("", 31), true},
		"very many":                        {refs("", 2000), refs("x", 2000), true},
		"very many that are the same":      {refs("", 2000), refs("", 2000), false},
		"very long":                        {refs(strings.Repeat("u", 100_000), 30), refs(strings.Repeat("v", 100_000), 30), true},
		"one that comes, of a known kind":  {refs("", 1), nil, false},
		"two that come, of the same kind":  {refs("", 2), nil, false},
		"two that come, one had come, too": {refs("", 3), refs("", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &admittest.Case{
				Authorize: []admittest.Access{{Verb: "*", Group: "*", Resource: "*", Subresource: "*", Namespace: "*", Name: "*"}},
				Steps:     []admittest.Step{{Request: admittest.Request{Operation: admissionv1.Update, Object: configMap(t, tc.refs), OldObject: configMap(t, tc.old)}}},
			}
			s, err := c.Serve(admittest.Context(t), ownership.Plugin)
			if err != nil {
				t.Fatalf("Serving: %v", err)
			}
			defer s.Close()
			checks := &countedChecks{accessReviews: accessReviews{s.Environment}}
			match, err := conditions.Match(t.Context(), s.Webhooks[router.PhaseValidate], requestOf(t, &c.Steps[0].Request), checks)
			if err != nil || match.Called != tc.want {
				t.Errorf("Got called %t, error %v, want %t", match.Called, err, tc.want)
			}
			if checks.n > maxChecks {
				t.Errorf("Got %d checks, want %d at most", checks.n, maxChecks)
			}
		})
	}
}

// countedChecks counts the access checks of the API server.
type countedChecks struct {
	accessReviews
	n int
}

func (c *countedChecks) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	c.n++
	return c.accessReviews.Authorize(ctx, a)
}

type object = map[string]any

func configMap(t *testing.T, refs []object) json.RawMessage {
	t.Helper()
	return encoded(t, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "web", "namespace": "shop", "ownerReferences": refs}})
}

func encoded(t *testing.T, o object) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func oneOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// someRequest returns a random create or update. It uses few owners, so that owners repeat.
func someRequest(t *testing.T, r *rand.Rand) admittest.Request {
	t.Helper()
	head := oneOf(r,
		object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "web", "namespace": "shop"}},
		object{"apiVersion": "acme.example/v1", "kind": "Thing", "metadata": object{"name": "web", "namespace": "shop"}},
		object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": object{"name": "web"}},
	)
	with := func(refs []object) json.RawMessage {
		meta, _ := head["metadata"].(object)
		meta["ownerReferences"] = refs
		return encoded(t, head)
	}
	old, refs := someRefs(r), someRefs(r)
	if r.IntN(3) == 0 {
		// Most updates change little.
		refs = append(append([]object{}, old...), refs[:min(1, len(refs))]...)
	}
	if r.IntN(3) == 0 {
		return admittest.Request{Operation: admissionv1.Create, Object: with(refs)}
	}
	return admittest.Request{Operation: admissionv1.Update, SubResource: oneOf(r, "", "", "", "status"), Object: with(refs), OldObject: with(old)}
}

func someRefs(r *rand.Rand) []object {
	refs := []object{}
	for range r.IntN(4) {
		kind := oneOf(r, [2]string{"v1", "Pod"}, [2]string{"apps/v1", "Deployment"}, [2]string{"v1", "Node"}, [2]string{"settings.postern.dev/v1alpha1", "PodPreset"}, [2]string{"apps", "v1/Deployment"})
		ref := object{"apiVersion": kind[0], "kind": kind[1], "name": oneOf(r, "a", "b"), "uid": oneOf(r, "u1", "u2", "u3")}
		switch r.IntN(4) {
		case 0:
			ref["blockOwnerDeletion"] = false
		case 1, 2:
			ref["blockOwnerDeletion"] = true
		}
		refs = append(refs, ref)
	}
	return refs
}

// someRights returns a random subset of the permissions that the plugin checks.
func someRights(r *rand.Rand) []admittest.Access {
	var out []admittest.Access
	add := func(ofTen int, a admittest.Access) {
		if r.IntN(10) < ofTen {
			out = append(out, a)
		}
	}
	add(1, admittest.Access{Verb: "update", Group: "*", Resource: "*", Subresource: "finalizers", Name: "*"})
	add(8, admittest.Access{Verb: "delete", Group: "*", Resource: "*", Namespace: "*", Name: "web"})
	add(3, admittest.Access{Verb: "delete", Group: "*", Resource: "*", Subresource: "status", Namespace: "*", Name: "web"})
	for _, name := range []string{"a", "b"} {
		for _, namespace := range []string{"shop", ""} {
			add(7, admittest.Access{Verb: "update", Resource: "pods", Subresource: "finalizers", Namespace: namespace, Name: name})
			add(7, admittest.Access{Verb: "update", Group: "apps", Resource: "deployments", Subresource: "finalizers", Namespace: namespace, Name: name})
			add(7, admittest.Access{Verb: "update", Group: "settings.postern.dev", Resource: "podpresets", Subresource: "finalizers", Namespace: namespace, Name: name})
			add(7, admittest.Access{Verb: "update", Resource: "nodes", Subresource: "finalizers", Namespace: namespace, Name: name})
		}
	}
	return out
}
