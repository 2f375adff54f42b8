package podsecuritypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/postern-dev/postern/pkg/admissions/pods/podsecuritypolicy"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/admittest"
	policyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
)

func Test(t *testing.T) { admittest.Run(t, podsecuritypolicy.Plugin) }

const anyPolicy = `{"apiVersion":"policy.postern.dev/v1","kind":"PodSecurityPolicy","metadata":{"name":"any"},"spec":{
	"privileged":true,"seLinux":{"rule":"RunAsAny"},"runAsUser":{"rule":"RunAsAny"},"supplementalGroups":{"rule":"RunAsAny"},"fsGroup":{"rule":"RunAsAny"}}}`

// plugin is the plugin in a cluster with policies. Every user may use every policy, unless authorize says no.
type plugin struct {
	admit.Handler
	env   *admittest.Environment
	asked []authorizationv1.SubjectAccessReviewSpec
}

func newPlugin(t *testing.T, config string, authorize func(authorizationv1.SubjectAccessReviewSpec) (bool, error), policies ...string) *plugin {
	t.Helper()
	c := &admittest.Case{}
	for _, p := range policies {
		c.Cluster = append(c.Cluster, []byte(p))
	}
	env, err := c.Environment()
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{env: env}
	d, err := env.Deps(podsecuritypolicy.Plugin, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.Authorize = func(_ context.Context, spec authorizationv1.SubjectAccessReviewSpec) (admit.Decision, error) {
		p.asked = append(p.asked, spec)
		allowed, err := authorize(spec)
		return admit.Decision{Allowed: allowed}, err
	}
	if p.Handler, err = podsecuritypolicy.Plugin.New(d, []byte(config)); err != nil {
		t.Fatal(err)
	}
	return p
}

func everybody(authorizationv1.SubjectAccessReviewSpec) (bool, error) { return true, nil }

func (p *plugin) sync(t *testing.T) {
	t.Helper()
	p.env.CustomInformers.Start(t.Context().Done())
	for gvr, ok := range p.env.CustomInformers.WaitForCacheSync(t.Context().Done()) {
		if !ok {
			t.Fatalf("%v did not sync", gvr)
		}
	}
}

func creation(serviceAccount string) *admit.Request {
	return &admit.Request{
		AdmissionRequest: &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "ns", Name: "web", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			UserInfo: authenticationv1.UserInfo{Username: "alice", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}},
		},
		Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
			Spec: corev1.PodSpec{ServiceAccountName: serviceAccount, Containers: []corev1.Container{
				{Name: "c", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}},
			}},
		},
	}
}

// TestAnUnsyncedCacheIsNoWayAround sends requests before the policies are known. They must fail, and a failure is no
// denial, so that the failure policy applies.
func TestAnUnsyncedCacheIsNoWayAround(t *testing.T) {
	p := newPlugin(t, "", everybody, anyPolicy)
	for phase, f := range map[string]admit.Func{"mutate": p.Mutate, "validate": p.Validate} {
		if err := f(t.Context(), creation("")); err == nil || admit.IsDenial(err) {
			t.Errorf("%s: got %v, want an error that is no denial", phase, err)
		}
	}
	p.sync(t)
	for phase, f := range map[string]admit.Func{"mutate": p.Mutate, "validate": p.Validate} {
		if err := f(t.Context(), creation("")); err != nil {
			t.Errorf("%s: got %v after the policies are known", phase, err)
		}
	}
}

// TestAStaleCacheIsNoWayAround has a policy in the cache that the API server has no more, or has restricted. The pod
// needs the policy as it was.
func TestAStaleCacheIsNoWayAround(t *testing.T) {
	restricted := strings.Replace(anyPolicy, `"privileged":true`, `"privileged":false`, 1)
	for name, tc := range map[string]struct {
		now  []string
		want string
	}{
		"the policy is the same": {now: []string{anyPolicy}},
		"the policy was deleted": {want: "no providers available to validate pod request"},
		"the policy was made stricter": {
			now:  []string{strings.Replace(restricted, `"name":"any"`, `"name":"any","resourceVersion":"2"`, 1)},
			want: "Privileged containers are not allowed",
		},
		"the policy was replaced by one of its name": {
			now:  []string{strings.Replace(restricted, `"name":"any"`, `"name":"any","uid":"2"`, 1)},
			want: "Privileged containers are not allowed",
		},
		"the policy was replaced by one that allows it": {now: []string{strings.Replace(anyPolicy, `"name":"any"`, `"name":"other"`, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, "", everybody, anyPolicy)
			p.sync(t)
			p.serve(t, tc.now)
			err := p.Validate(t.Context(), creation(""))
			if tc.want == "" && err != nil {
				t.Errorf("Got %v", err)
			}
			if tc.want != "" && (!admit.IsDenial(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("Got %v, want a denial with %q", err, tc.want)
			}
		})
	}
}

// serve makes the API server answer with these policies, without telling the informer.
func (p *plugin) serve(t *testing.T, policies []string) {
	t.Helper()
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "policy.postern.dev/v1", "kind": "PodSecurityPolicyList"}}
	for _, text := range policies {
		u := unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		list.Items = append(list.Items, u)
	}
	p.env.Dynamic.PrependReactor("get", policyv1.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		for i := range list.Items {
			if get, ok := a.(clienttesting.GetAction); ok && get.GetName() == list.Items[i].GetName() {
				return true, &list.Items[i], nil
			}
		}
		return true, nil, apierrors.NewNotFound(policyv1.GroupVersionResource().GroupResource(), "any")
	})
	p.env.Dynamic.PrependReactor("list", policyv1.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, list, nil })
}

// TestWhoIsAskedFor lists the access reviews of one request.
func TestWhoIsAskedFor(t *testing.T) {
	attributes := func(group string) *authorizationv1.ResourceAttributes {
		return &authorizationv1.ResourceAttributes{Verb: "use", Group: group, Version: "*", Resource: "podsecuritypolicies", Namespace: "ns", Name: "any"}
	}
	account := func(group string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:ns:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns"}, ResourceAttributes: attributes(group),
		}
	}
	user := func(group string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{
			User: "alice", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}}, ResourceAttributes: attributes(group),
		}
	}
	const ours, legacy = "policy.postern.dev", "legacyAPIGroups: true"
	type specs = []authorizationv1.SubjectAccessReviewSpec
	for name, tc := range map[string]struct {
		config, account string
		allowed         func(authorizationv1.SubjectAccessReviewSpec) bool
		want            specs
	}{
		"the service account may":                 {account: "robot", allowed: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }, want: specs{account(ours)}},
		"the user may":                            {account: "robot", allowed: func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.User == "alice" }, want: specs{account(ours), user(ours)}},
		"there is no service account":             {want: specs{user(ours)}},
		"no account can have the name":            {account: strings.Repeat("a", 254), allowed: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }, want: specs{user(ours)}},
		"nobody may":                              {account: "robot", want: specs{account(ours), user(ours)}},
		"nobody may, by the old groups neither":   {config: legacy, account: "robot", want: specs{account(ours), account("policy"), account("extensions"), user(ours), user("policy"), user("extensions")}},
		"the service account may by an old group": {config: legacy, account: "robot", allowed: func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.ResourceAttributes.Group == "policy" }, want: specs{account(ours), account("policy")}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, tc.config, func(s authorizationv1.SubjectAccessReviewSpec) (bool, error) {
				return tc.allowed != nil && tc.allowed(s), nil
			}, anyPolicy)
			p.sync(t)
			err := p.Mutate(t.Context(), creation(tc.account))
			if (err == nil) != (tc.allowed != nil) || (err != nil && !admit.IsDenial(err)) {
				t.Errorf("Got %v", err)
			}
			if diff := cmp.Diff(p.asked, tc.want); diff != "" {
				t.Errorf("The access reviews differ (- got, + want):\n%s", diff)
			}
		})
	}
}

// TestDenialsAreShort has pods with as many violations as fit into a request. A denial that names each of them with the whole
// list, or with a long value of the pod, takes gigabytes.
func TestDenialsAreShort(t *testing.T) {
	var policies []string
	for i := range 5 {
		policies = append(policies, fmt.Sprintf(`{"apiVersion":"policy.postern.dev/v1","kind":"PodSecurityPolicy","metadata":{"name":"some-%02d"},"spec":{
			"seLinux":{"rule":"MustRunAs","seLinuxOptions":{"level":"s0"}},"runAsUser":{"rule":"RunAsAny"},"fsGroup":{"rule":"RunAsAny"},
			"supplementalGroups":{"rule":"MustRunAs","ranges":[{"min":1,"max":1}]}}}`, i))
	}
	p := newPlugin(t, "", everybody, policies...)
	p.sync(t)
	for name, change := range map[string]func(*corev1.PodSpec){
		"groups": func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: make([]int64, 100_000)}
		},
		"a long value": func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: strings.Repeat("x", 100_000)}}
			for range 200 {
				s.Containers = append(s.Containers, s.Containers[0])
			}
		},
		"containers": func(s *corev1.PodSpec) {
			for range 10_000 {
				s.Containers = append(s.Containers, s.Containers[0])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for phase, f := range map[string]admit.Func{"mutate": p.Mutate, "validate": p.Validate} {
				r := creation("")
				change(&r.Object.(*corev1.Pod).Spec)
				if err := f(t.Context(), r); !admit.IsDenial(err) || len(err.Error()) > 300_000 {
					t.Errorf("%s: got %.500v of %d bytes, want a short denial", phase, err, len(fmt.Sprint(err)))
				}
			}
		})
	}
}

// TestMissingDefaultsAreShort has many policies, and a pod with many containers that lack their defaults.
func TestMissingDefaultsAreShort(t *testing.T) {
	var policies []string
	for i := range 5 {
		policies = append(policies, strings.NewReplacer(`"any"`, fmt.Sprintf(`"any-%d"`, i), `"runAsUser":{"rule":"RunAsAny"}`, `"runAsUser":{"rule":"MustRunAsNonRoot"}`).Replace(anyPolicy))
	}
	p := newPlugin(t, "", everybody, policies...)
	p.sync(t)
	r := creation("")
	spec := &r.Object.(*corev1.Pod).Spec
	for range 10_000 {
		spec.Containers = append(spec.Containers, spec.Containers[0])
	}
	want := `pods "web" is forbidden: PodSecurityPolicy: unable to validate pod: []`
	for i := range 3 {
		var fields []string
		for j := range 10 {
			fields = append(fields, fmt.Sprintf("spec.containers[%d].securityContext.runAsNonRoot", j))
		}
		want += fmt.Sprintf(`; the pod lacks defaults of policy "any-%d": %s`, i, strings.Join(fields, ", "))
	}
	if err := p.Validate(t.Context(), r); !admit.IsDenial(err) || err.Error() != want {
		t.Errorf("Got\n  %.5000v\nwant a denial\n  %s", err, want)
	}
	if len(p.asked) != 3 {
		t.Errorf("Got %d access reviews, want 3", len(p.asked))
	}
}

// TestHintsNeedNoAnswer has policies whose defaults the pod lacks, which is denied whatever the access reviews say. The name of the
// container is not checked yet.
func TestHintsNeedNoAnswer(t *testing.T) {
	var policies []string
	for i := range 50 {
		policies = append(policies, fmt.Sprintf(`{"apiVersion":"policy.postern.dev/v1","kind":"PodSecurityPolicy","metadata":{"name":"p-%02d","annotations":{"apparmor.security.beta.kubernetes.io/defaultProfileName":"runtime/default"}},
			"spec":{"privileged":true,"seLinux":{"rule":"RunAsAny"},"runAsUser":{"rule":"RunAsAny"},"supplementalGroups":{"rule":"RunAsAny"},"fsGroup":{"rule":"RunAsAny"}}}`, i))
	}
	for name, tc := range map[string]struct {
		authorize func(authorizationv1.SubjectAccessReviewSpec) (bool, error)
		hints     int
		asked     int
	}{
		"all":       {everybody, 3, 3},
		"none":      {func(authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, nil }, 0, 10},
		"no answer": {func(authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, errors.New("away") }, 0, 1},
		"then no one": {func(s authorizationv1.SubjectAccessReviewSpec) (bool, error) {
			return s.ResourceAttributes.Name == "p-09", nil
		}, 1, 10},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, "", tc.authorize, policies...)
			p.sync(t)
			r := creation("")
			r.Object.(*corev1.Pod).Spec.Containers[0].Name = strings.Repeat("c", 1<<20)
			err := p.Validate(t.Context(), r)
			if !admit.IsDenial(err) || !strings.HasPrefix(err.Error(), `pods "web" is forbidden: PodSecurityPolicy: unable to validate pod: []`) || len(err.Error()) > 2<<10 {
				t.Fatalf("Got %.5000v, want a short denial", err)
			}
			if got := strings.Count(err.Error(), "; the pod lacks defaults of policy"); got != tc.hints || len(p.asked) != tc.asked {
				t.Errorf("Got %d hints after %d access reviews, want %d after %d", got, len(p.asked), tc.hints, tc.asked)
			}
		})
	}
}

// TestAnEndedRequestIsNoDenial has a context that ends before the policies are tried.
func TestAnEndedRequestIsNoDenial(t *testing.T) {
	p := newPlugin(t, "", everybody, strings.Replace(anyPolicy, `"privileged":true`, `"privileged":false`, 1))
	p.sync(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for phase, f := range map[string]admit.Func{"mutate": p.Mutate, "validate": p.Validate} {
		if err := f(ctx, creation("")); !errors.Is(err, context.Canceled) || admit.IsDenial(err) {
			t.Errorf("%s: got %v, want %v", phase, err, context.Canceled)
		}
	}
}

// TestAPolicyIsAskedForOnce has the search repeated for a policy that changed in the meantime.
func TestAPolicyIsAskedForOnce(t *testing.T) {
	p := newPlugin(t, "", everybody, anyPolicy)
	p.sync(t)
	p.serve(t, []string{strings.Replace(anyPolicy, `"name":"any"`, `"name":"any","resourceVersion":"2"`, 1)})
	if err := p.Validate(t.Context(), creation("")); err != nil || len(p.asked) != 1 {
		t.Errorf("Got %v and %d access reviews, want one", err, len(p.asked))
	}
}

func TestAnUnexpectedTypeIsDenied(t *testing.T) {
	p := newPlugin(t, "", everybody, anyPolicy)
	p.sync(t)
	for phase, f := range map[string]admit.Func{"mutate": p.Mutate, "validate": p.Validate} {
		r := creation("")
		r.Object = &corev1.ConfigMap{}
		if err := f(t.Context(), r); !admit.IsDenial(err) || !strings.Contains(err.Error(), `pods "web" is forbidden: unexpected type *v1.ConfigMap`) {
			t.Errorf("%s: got %v, want a denial", phase, err)
		}
	}
}

// TestChoiceByASeccompProfile has the choices of kube-apiserver 1.24.17 between a policy that changes every pod and one that
// changes none. Both allow every profile.
func TestChoiceByASeccompProfile(t *testing.T) {
	const annotation = "seccomp.security.alpha.kubernetes.io/allowedProfileNames"
	named := func(name, rule string) string {
		return fmt.Sprintf(`{"apiVersion":"policy.postern.dev/v1","kind":"PodSecurityPolicy","metadata":{"name":%q,"annotations":{%q:"*"}},"spec":{
			"seLinux":{"rule":"RunAsAny"},"runAsUser":{"rule":%q},"supplementalGroups":{"rule":"RunAsAny"},"fsGroup":{"rule":"RunAsAny"}}}`, name, annotation, rule)
	}
	p := newPlugin(t, "", everybody, named("a-strict", "MustRunAsNonRoot"), named("b-permissive", "RunAsAny"))
	p.sync(t)
	runtimeDefault := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	const podKey, containerKey = corev1.SeccompPodAnnotationKey, corev1.SeccompContainerAnnotationKeyPrefix + "c"
	for name, tc := range map[string]struct {
		annotations    map[string]string
		pod, container *corev1.SeccompProfile
		want           string
	}{
		"no profile":                        {want: "b-permissive"},
		"the field of the pod":              {pod: runtimeDefault, want: "a-strict"},
		"another field of the pod":          {pod: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}, want: "a-strict"},
		"a field that has no annotation":    {pod: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost}, want: "b-permissive"},
		"the field of a container":          {container: runtimeDefault, want: "b-permissive"},
		"both fields":                       {pod: runtimeDefault, container: runtimeDefault, want: "a-strict"},
		"the annotation of the pod":         {annotations: map[string]string{podKey: "runtime/default"}, want: "b-permissive"},
		"the annotation of a container":     {annotations: map[string]string{containerKey: "runtime/default"}, want: "b-permissive"},
		"the field and its annotation":      {annotations: map[string]string{podKey: "runtime/default"}, pod: runtimeDefault, want: "b-permissive"},
		"the field and an empty annotation": {annotations: map[string]string{podKey: ""}, pod: runtimeDefault, want: "a-strict"},
		"the field, and one of a container": {annotations: map[string]string{containerKey: "runtime/default"}, pod: runtimeDefault, want: "a-strict"},
		"an annotation that is no profile":  {annotations: map[string]string{podKey: "foo"}, want: "b-permissive"},
		"the field and another profile":     {annotations: map[string]string{podKey: "unconfined"}, pod: runtimeDefault, want: "b-permissive"},
	} {
		t.Run(name, func(t *testing.T) {
			r := creation("")
			pod := r.Object.(*corev1.Pod)
			pod.Annotations = tc.annotations
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: tc.pod}
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{SeccompProfile: tc.container}
			if err := p.Mutate(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if got := pod.Annotations["kubernetes.io/psp"]; got != tc.want {
				t.Errorf("Got the policy %q, want %q", got, tc.want)
			}
		})
	}
}
