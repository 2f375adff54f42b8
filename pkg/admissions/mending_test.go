package admissions

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/pkg/admissions/pods"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	"github.com/postern-dev/postern/pkg/admit/dispatch"
	"github.com/postern-dev/postern/pkg/router"
)

// TestMendedDecisions sends the requests of all cases to two services of the plugin. Other replicas are said to lack the plugin of
// one of them, and have not mutated the object. It decides as the other one does once the object has the plugin's own changes.
func TestMendedDecisions(t *testing.T) {
	mended := map[string]int{}
	for _, m := range members() {
		var pairs []*pair
		for _, c := range m.cases(t) {
			if len(c.Steps) == 0 {
				continue
			}
			settled := serveCase(t, m, c, nil)
			if settled.Mutate == nil || settled.Validate == nil {
				settled.stop()
				continue
			}
			pairs = append(pairs, &pair{t, c, settled, serveCase(t, m, c, func() bool { return true })})
		}
		for _, p := range pairs {
			p.settled.sync(t)
			p.mixed.sync(t)
			mended[m.Name] += p.compare()
			p.settled.stop()
			p.mixed.stop()
		}
		if len(pairs) == 0 {
			delete(mended, m.Name)
		}
	}
	// The cases of the other five have no object that lacks only the changes of the plugin.
	for name, some := range map[string]bool{
		"AlwaysPullImages": true, "LimitRanger": true, "PodSecurityPolicy": true, "RuntimeClass": true, "ServiceAccount": true,
		"NodeRestriction": false, "PodNodeSelector": false, "PodPreset": false, "PodTolerationRestriction": false, "Priority": false,
	} {
		n, ok := mended[name]
		if delete(mended, name); !ok || (n > 0) != some {
			t.Errorf("%s: mended %d cases, want some: %t", name, n, some)
		}
	}
	if len(mended) > 0 {
		t.Errorf("The plugins %v mutate and validate too", mended)
	}
}

// served is a service in the cluster of a case.
type served struct {
	router.AdmissionService

	environment *admittest.Environment
	// stop stops the informers and closes the environment.
	stop func()
}

func serveCase(t *testing.T, m member, c *admittest.Case, mixed func() bool) served {
	t.Helper()
	e, err := c.Environment()
	if err != nil {
		t.Fatal(err)
	}
	e.Mixed = mixed
	s, err := c.Service(e, m.Plugin)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, s, e)
}

// start starts the informers of the environment.
func start(t *testing.T, s router.AdmissionService, e *admittest.Environment) served {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e.Informers.StartWithContext(ctx)
	e.CustomInformers.Start(ctx.Done())
	return served{s, e, func() {
		cancel()
		e.Informers.Shutdown()
		e.CustomInformers.Shutdown()
		e.Close()
	}}
}

// sync waits for the informers, for 0.1 s if they have just been started.
func (s served) sync(t *testing.T) {
	t.Helper()
	if err := s.environment.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// answer returns the answer of a half to a request.
func answer(t *testing.T, f router.AdmitFunc, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel() // PodPreset holds memory until the request ends.
	return f(ctx, ar.DeepCopy())
}

// after returns the request with the changes of a mutating half.
func after(t *testing.T, ar *admissionv1.AdmissionRequest, resp *admissionv1.AdmissionResponse) *admissionv1.AdmissionRequest {
	t.Helper()
	out := ar.DeepCopy()
	if len(resp.Patch) == 0 {
		return out
	}
	var err error
	if out.Object.Raw, err = dispatch.Apply(ar.Object.Raw, resp.Patch); err != nil {
		t.Fatal(err)
	}
	return out
}

// pair are two services for a case. The mixed one runs beside replicas of another version.
type pair struct {
	*testing.T

	c              *admittest.Case
	settled, mixed served
}

// compare returns how many denials were dropped.
func (p *pair) compare() (dropped int) {
	for i := range p.c.Steps {
		step := &p.c.Steps[i]
		p.settled.environment.Clock.Step(step.After.Duration)
		p.mixed.environment.Clock.Step(step.After.Duration)
		ar, err := step.Request.Admission()
		if err != nil {
			p.Fatal(err)
		}
		mutated, alone := answer(p.T, p.settled.Mutate, ar), answer(p.T, p.settled.Validate, ar)
		want := alone
		switch {
		case alone.Allowed || failed(alone) || failed(mutated):
		case !mutated.Allowed:
			want = mutated
		default:
			if want = answer(p.T, p.settled.Validate, after(p.T, ar, mutated)); failed(want) {
				want = alone
			}
		}
		got := answer(p.T, p.mixed.Validate, ar)
		if verdict(got) != verdict(want) {
			p.Errorf("%s, step %d: got %s, want %s; for the object as it is: %s", p.c.File, i+1, verdict(got), verdict(want), verdict(alone))
		}
		if got.Allowed && !alone.Allowed {
			dropped++
		}
		if !mutated.Allowed {
			continue
		}
		ar = after(p.T, ar, mutated)
		if got, want := answer(p.T, p.mixed.Validate, ar), answer(p.T, p.settled.Validate, ar); verdict(got) != verdict(want) {
			p.Errorf("%s, step %d, mutated: got %s, want %s", p.c.File, i+1, verdict(got), verdict(want))
		}
	}
	return dropped
}

func failed(r *admissionv1.AdmissionResponse) bool {
	return !r.Allowed && r.Result.Code >= http.StatusInternalServerError
}

func verdict(r *admissionv1.AdmissionResponse) string {
	if r.Allowed {
		return "admitted"
	}
	return fmt.Sprintf("%d %s %s", r.Result.Code, r.Result.Reason, r.Result.Message)
}

// TestPluginsThatARolloutAdds has an old replica that answers the mutating call, and a new one with more plugins that answers the
// validating call.
func TestPluginsThatARolloutAdds(t *testing.T) {
	for name, tc := range map[string]struct {
		// cluster is that of a case.
		cluster string
		// kept and added are the plugins of both replicas, and those that the new one has besides.
		kept, added []string
		pod         string
		// want is the message of a denial. unchanged holds the plugins in the audit annotation.
		want, unchanged string
	}{
		"another plugin denies what is stored": {
			cluster: "cluster: [{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}}]",
			kept:    []string{"PodSecurity"}, added: []string{"AlwaysPullImages"},
			pod:  "{containers: [{name: app, image: app, imagePullPolicy: IfNotPresent, securityContext: {privileged: true}}]}",
			want: `pods "web" is forbidden: violates PodSecurity "restricted:latest": privileged`,
		},
		"another plugin denies what a change would have mended": {
			cluster: `
authorize: [{verb: use, group: policy.postern.dev, resource: podsecuritypolicies, namespace: shop, name: "*"}]
cluster:
- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: sandbox}, handler: h, overhead: {podFixed: {cpu: 250m}}}
- apiVersion: policy.postern.dev/v1
  kind: PodSecurityPolicy
  metadata: {name: sandboxed}
  spec:
    seLinux: {rule: RunAsAny}
    runAsUser: {rule: MustRunAs, ranges: [{min: 100, max: 200}]}
    supplementalGroups: {rule: RunAsAny}
    fsGroup: {rule: RunAsAny}
    volumes: ['*']
    runtimeClass: {allowedRuntimeClassNames: ['*'], defaultRuntimeClassName: sandbox}`,
			kept: []string{"RuntimeClass"}, added: []string{"PodSecurityPolicy"},
			pod:  "{overhead: {cpu: 250m}, containers: [{name: app, image: app}]}",
			want: `pods "web" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`,
		},
		"the changes of one plugin need those of another one": {
			cluster: `
authorize: [{user: "system:serviceaccount:shop:default", verb: use, group: policy.postern.dev, resource: podsecuritypolicies, namespace: shop, name: "*"}]
cluster:
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop}}
- apiVersion: policy.postern.dev/v1
  kind: PodSecurityPolicy
  metadata: {name: uid}
  spec:
    seLinux: {rule: RunAsAny}
    runAsUser: {rule: MustRunAs, ranges: [{min: 100, max: 200}]}
    supplementalGroups: {rule: RunAsAny}
    fsGroup: {rule: RunAsAny}
    volumes: ['*']`,
			added:     []string{"ServiceAccount", "PodSecurityPolicy"},
			pod:       "{containers: [{name: app, image: app}]}",
			unchanged: "ServiceAccount,PodSecurityPolicy",
		},
		"the denial names only what is really wrong": {
			cluster: "cluster: [{apiVersion: v1, kind: LimitRange, metadata: {name: limits, namespace: shop}, spec: {limits: [{type: Container, max: {cpu: 1, memory: 1Gi}, default: {cpu: 1, memory: 1Gi}}]}}]",
			added:   []string{"LimitRanger"},
			pod:     "{containers: [{name: app, image: app}, {name: large, image: app, resources: {limits: {cpu: 2}}}]}",
			want:    `pods "web" is forbidden: maximum cpu usage per Container is 1, but limit is 2`,
		},
		"a good pod": {
			cluster: `
cluster:
- {apiVersion: v1, kind: LimitRange, metadata: {name: limits, namespace: shop}, spec: {limits: [{type: Container, max: {cpu: 1}, default: {cpu: 1}}]}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop}}
- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: sandbox}, handler: h, overhead: {podFixed: {cpu: 250m}}}`,
			added:     []string{"RuntimeClass", "AlwaysPullImages", "ServiceAccount", "LimitRanger"},
			pod:       "{runtimeClassName: sandbox, containers: [{name: app, image: app, imagePullPolicy: IfNotPresent}]}",
			unchanged: "LimitRanger,ServiceAccount,AlwaysPullImages,RuntimeClass",
		},
	} {
		t.Run(name, func(t *testing.T) {
			older, newer := serveIn(t, tc.cluster, tc.kept), serveIn(t, tc.cluster, slices.Concat(tc.kept, tc.added))
			ar := podRequest(t, tc.pod)
			if older.Mutate != nil {
				ar = after(t, ar, answer(t, older.Mutate, ar))
			}
			got := answer(t, newer.Validate, ar)
			if got.Allowed != (tc.want == "") || !got.Allowed && !strings.HasPrefix(got.Result.Message, tc.want) {
				t.Errorf("Got %s, want %s", verdict(got), cmp.Or(tc.want, "it admitted"))
			}
			if unchanged := got.AuditAnnotations["admitted-without-changes-of"]; unchanged != tc.unchanged {
				t.Errorf("Got it admitted without the changes of %q, want %q", unchanged, tc.unchanged)
			}
		})
	}
}

// serveIn returns the family of pods with some plugins, beside replicas of another version.
func serveIn(t *testing.T, cluster string, plugins []string) served {
	t.Helper()
	c, err := admittest.Parse(fmt.Appendf(nil, "# The cluster.\n%s\nwant: {configError: none}\n", cluster))
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Environment()
	if err != nil {
		t.Fatal(err)
	}
	deps, err := e.Deps(pods.Family.Plugins[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if deps.Features, err = Families().Features(); err != nil {
		t.Fatal(err)
	}
	deps.Mixed = func() bool { return true }
	enabled := map[string][]byte{}
	for _, name := range plugins {
		enabled[name] = nil
	}
	s, err := pods.Family.Service(deps, enabled)
	if err != nil {
		t.Fatal(err)
	}
	out := start(t, s, e)
	t.Cleanup(out.stop)
	out.sync(t)
	return out
}

func podRequest(t *testing.T, spec string) *admissionv1.AdmissionRequest {
	t.Helper()
	c, err := admittest.Parse(fmt.Appendf(nil, "# A pod.\nrequest: {operation: CREATE, object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: %s}}\nwant: {allowed: true}\n", spec))
	if err != nil {
		t.Fatal(err)
	}
	ar, err := c.Steps[0].Request.Admission()
	if err != nil {
		t.Fatal(err)
	}
	return ar
}
