package admit_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/pkg/admit"
)

// requires denies pods without one of the labels.
func requires(labels ...string) admit.Func {
	return func(_ context.Context, r *admit.Request) error {
		for _, l := range labels {
			if r.Object.(*corev1.Pod).Labels[l] == "" {
				return admit.Forbidden(r, errors.New("no label "+l))
			}
		}
		return nil
	}
}

// lackedByOthers are dependencies with which another replica is said to lack all plugins.
func lackedByOthers() admit.Deps {
	return admit.Deps{Mixed: func() bool { return true }}
}

// TestDenialsThatOthersMayHaveCaused has a plugin that sets the label to its own name, and denies pods without it. Another
// replica, which may have answered the mutating call, is said to lack the plugin.
func TestDenialsThatOthersMayHaveCaused(t *testing.T) {
	set := func(value string) admit.Func {
		return func(_ context.Context, r *admit.Request) error {
			r.Warn("not from a dry run")
			r.Audit("not", "from a dry run")
			if !r.IsDryRun() {
				return errors.New("not a dry run")
			}
			p := r.Object.(*corev1.Pod)
			if p.Labels == nil {
				p.Labels = map[string]string{}
			}
			p.Labels[value] = value
			return nil
		}
	}
	fails := func(context.Context, *admit.Request) error { return errors.New("broken") }
	denies := func(_ context.Context, r *admit.Request) error { return admit.Forbidden(r, errors.New("never")) }
	nothing := func(context.Context, *admit.Request) error { return nil }
	onCopyOnly := func(f admit.Func) admit.Func {
		return func(ctx context.Context, r *admit.Request) error {
			if r.IsDryRun() {
				return f(ctx, r)
			}
			return requires("P")(ctx, r)
		}
	}
	onceLabelled := func(f admit.Func) admit.Func {
		return func(ctx context.Context, r *admit.Request) error {
			return cmp.Or(requires("O")(ctx, r), f(ctx, r))
		}
	}
	pods := admit.On("pods", create)
	p := func(name string, mutate, validate admit.Func) *admit.Plugin {
		return plugin(name, admit.Handler{Mutate: mutate, Validate: validate}, pods)
	}
	const bare, labelled = `{"metadata":{"name":"p"}}`, `{"metadata":{"name":"p","labels":{"P":"P"}}}`
	for name, tc := range map[string]struct {
		plugins []*admit.Plugin
		pod     string
		// equal is true if all replicas are said to run the same plugins.
		equal bool
		// without holds the plugins in the annotation. want is a part of the message of a denial. by is the plugin that denied,
		// if it is not P.
		without, want, by string
	}{
		"its change would do":                   {plugins: []*admit.Plugin{p("P", set("P"), requires("P"))}, pod: bare, without: "P"},
		"all are said to run it":                {plugins: []*admit.Plugin{p("P", set("P"), requires("P"))}, pod: bare, equal: true, want: "no label P"},
		"its change is there":                   {plugins: []*admit.Plugin{p("P", set("P"), denies)}, pod: labelled, want: "never"},
		"its change is there and passes":        {plugins: []*admit.Plugin{p("P", set("P"), requires("P"))}, pod: labelled},
		"its change would not do":               {plugins: []*admit.Plugin{p("P", set("P"), requires("P", "Q"))}, pod: bare, want: "no label Q"},
		"it changes nothing":                    {plugins: []*admit.Plugin{p("P", nothing, onCopyOnly(nothing))}, pod: bare, want: "no label P"},
		"another one changes what it wants":     {plugins: []*admit.Plugin{p("O", set("P"), nil), p("P", nothing, requires("P"))}, pod: bare, want: "no label P"},
		"it changes what another one wants too": {plugins: []*admit.Plugin{p("O", set("Q"), nil), p("P", set("P"), requires("P", "Q"))}, pod: bare, without: "P"},
		"its Mutate denies":                     {plugins: []*admit.Plugin{p("P", denies, requires("P"))}, pod: bare, want: "never"},
		"its Mutate fails":                      {plugins: []*admit.Plugin{p("P", fails, requires("P"))}, pod: bare, want: "no label P"},
		"the Mutate of another one denies":      {plugins: []*admit.Plugin{p("P", set("P"), requires("P")), p("Q", denies, nil)}, pod: bare, want: "never", by: "Q"},
		"the Mutate of another one fails":       {plugins: []*admit.Plugin{p("P", set("P"), requires("P")), p("Q", fails, nil)}, pod: bare, want: "no label P"},
		"it fails after its change":             {plugins: []*admit.Plugin{p("P", set("P"), onCopyOnly(fails))}, pod: bare, want: "no label P"},
		"it denies after its change":            {plugins: []*admit.Plugin{p("P", set("P"), onCopyOnly(denies))}, pod: bare, want: "never"},
		"it fails":                              {plugins: []*admit.Plugin{p("P", set("P"), fails)}, pod: bare, want: "broken"},
		"it fails without its change": {plugins: []*admit.Plugin{p("P", set("P"), func(ctx context.Context, r *admit.Request) error {
			if requires("P")(ctx, r) != nil {
				return errors.New("broken")
			}
			return nil
		})}, pod: bare, want: "broken"},
		"it does not mutate":                      {plugins: []*admit.Plugin{p("P", nil, requires("P")), p("Q", set("P"), nil)}, pod: bare, want: "no label P"},
		"it does not mutate these requests":       {plugins: []*admit.Plugin{plugin("P", admit.Handler{Mutate: set("P"), Validate: requires("P")}, pods.In(admit.Validating), admit.On("pods", update).In(admit.Mutating))}, pod: bare, want: "no label P"},
		"others decide about the object as it is": {plugins: []*admit.Plugin{p("P", set("P"), requires("P")), p("Q", nil, requires("P"))}, pod: bare, want: "no label P", by: "Q"},
		"another one does not mutate these requests": {
			plugins: []*admit.Plugin{plugin("O", admit.Handler{Mutate: denies}, admit.On("pods", update)), p("P", set("P"), requires("P"))}, pod: bare, without: "P",
		},
		"its Mutate needs the change of another one": {
			plugins: []*admit.Plugin{p("O", set("O"), nil), p("P", onceLabelled(set("P")), requires("P"))}, pod: bare, without: "P",
		},
		"two plugins": {
			plugins: []*admit.Plugin{p("P", set("P"), requires("P")), p("Q", set("Q"), requires("Q")), p("R", set("R"), requires("R"))},
			pod:     `{"metadata":{"name":"p","labels":{"R":"R"}}}`, without: "P,Q",
		},
	} {
		t.Run(name, func(t *testing.T) {
			mended, rejected := "", map[string]bool{}
			s := serviceWith(t, admit.Deps{
				Mixed:  func() bool { return !tc.equal },
				Mended: func(plugin string) { mended += "," + plugin },
				Observe: func(plugin string, _ admit.Phase, r *admit.Request, _ time.Duration, err error) {
					rejected[plugin] = err != nil
					if r.IsDryRun() {
						t.Errorf("Observed a dry run of %s", plugin)
					}
				},
			}, tc.plugins...)
			ar := request(create, tc.pod, "")
			got := s.Validate(t.Context(), ar)
			if got.Allowed != (tc.want == "") || !got.Allowed && !strings.Contains(got.Result.Message, tc.want) {
				t.Errorf("Got %+v, want the denial %q", got, tc.want)
			}
			want := map[string]string{}
			if tc.want != "" && tc.want != "broken" {
				want["plugin"] = cmp.Or(tc.by, "P")
			}
			if tc.without != "" {
				want["admitted-without-changes-of"] = tc.without
			}
			if !maps.Equal(got.AuditAnnotations, want) || len(got.Warnings) > 0 || mended != strings.TrimSuffix(","+tc.without, ",") {
				t.Errorf("Got the audit annotations %v, the warnings %q and the counts %q, want %v", got.AuditAnnotations, got.Warnings, mended, want)
			}
			for plugin, r := range rejected {
				if want := tc.want != "" && plugin == cmp.Or(tc.by, "P"); r != want {
					t.Errorf("Observed that %s rejected the request: %t, want %t", plugin, r, want)
				}
			}
			if tc.by != "" && !rejected[tc.by] {
				t.Errorf("Did not observe that %s denied the request", tc.by)
			}
			if ar.DryRun != nil {
				t.Error("The request became a dry run")
			}
		})
	}
}

// TestDenialOfADeletion has a request without an object that could be changed.
func TestDenialOfADeletion(t *testing.T) {
	p := plugin("P", admit.Handler{
		Mutate:   func(context.Context, *admit.Request) error { return nil },
		Validate: func(_ context.Context, r *admit.Request) error { return admit.Forbidden(r, errors.New("no")) },
	}, admit.On("pods", "DELETE"))
	s := serviceWith(t, lackedByOthers(), p)
	if got := s.Validate(t.Context(), request("DELETE", "", `{"metadata":{"name":"p"}}`)); got.Allowed || got.Result.Code != 403 {
		t.Errorf("Got %+v, want the denial", got)
	}
}

// TestDenialInTheMutatingPhase has a Mutate that would admit a dry run.
func TestDenialInTheMutatingPhase(t *testing.T) {
	p := plugin("P", admit.Handler{Mutate: func(_ context.Context, r *admit.Request) error {
		if r.IsDryRun() {
			r.Object.(*corev1.Pod).Labels = map[string]string{"P": "P"}
			return nil
		}
		return admit.Forbidden(r, errors.New("no"))
	}}, admit.On("pods", create))
	s := serviceWith(t, lackedByOthers(), p)
	if got := s.Mutate(t.Context(), request(create, `{}`, "")); got.Allowed || got.Result.Code != 403 {
		t.Errorf("Got %+v, want the denial", got)
	}
}

// TestGrowthOfTheChangedObject has a Mutate that adds much to the object. Later plugins of the dry run know how large it is.
func TestGrowthOfTheChangedObject(t *testing.T) {
	const added = 1 << 20
	var known []int64
	o := plugin("O", admit.Handler{Mutate: func(ctx context.Context, r *admit.Request) error { return r.Grow(ctx, added) }}, admit.On("pods", create))
	p := plugin("P", admit.Handler{
		Mutate: func(_ context.Context, r *admit.Request) error {
			known = append(known, r.CopyMemory())
			r.Object.(*corev1.Pod).Labels = map[string]string{"P": "P"}
			return nil
		},
		Validate: requires("P"),
	}, admit.On("pods", create))
	s := serviceWith(t, lackedByOthers(), o, p)
	got := s.Validate(t.Context(), request(create, `{}`, ""))
	if !got.Allowed || len(known) != 2 || known[0] < added || known[1] < added {
		t.Errorf("Got %+v with the sizes %d, want at least %d", got, known, added)
	}
}

// TestDenialBeforeTheDeadline has a Mutate that takes all the time that it gets.
func TestDenialBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plugin("P", admit.Handler{
			Mutate:   func(ctx context.Context, _ *admit.Request) error { <-ctx.Done(); return ctx.Err() },
			Validate: func(_ context.Context, r *admit.Request) error { return admit.Forbidden(r, errors.New("no")) },
		}, admit.On("pods", create))
		s := serviceWith(t, lackedByOthers(), p)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if got := s.Validate(ctx, request(create, `{}`, "")); got.Allowed || got.Result.Code != 403 || time.Since(start) != 5*time.Second {
			t.Errorf("Got %+v after %v, want the denial after half of the time", got, time.Since(start))
		}
	})
}

// TestChangesAreMadeOncePerRequest counts the calls of the Mutate of two plugins whose denials are dropped: once for all denials,
// and then once for each denial, to see what the plugin changes, after those before it.
func TestChangesAreMadeOncePerRequest(t *testing.T) {
	calls := map[string]int{}
	labeller := func(name string) *admit.Plugin {
		return plugin(name, admit.Handler{
			Mutate: func(_ context.Context, r *admit.Request) error {
				calls[name]++
				r.Object.(*corev1.Pod).Labels[name] = name
				return nil
			},
			Validate: requires(name),
		}, admit.On("pods", create))
	}
	s := serviceWith(t, lackedByOthers(), labeller("P"), labeller("Q"))
	if got := s.Validate(t.Context(), request(create, `{"metadata":{"labels":{"a":"b"}}}`, "")); !got.Allowed || calls["P"] != 3 || calls["Q"] != 2 {
		t.Errorf("Got %+v after the calls %v, want 3 of P and 2 of Q", got, calls)
	}
}
