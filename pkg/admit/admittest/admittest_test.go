package admittest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/admit/access"
	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// obedient is a plugin that follows the annotations of a pod.
func obedient() *admit.Plugin {
	return &admit.Plugin{
		Configurable: true,
		Name:         "Obedient",
		Rules: []admit.Rule{
			admit.On("pods", admissionv1.Create, admissionv1.Update), admit.On("pods", admissionv1.Delete).If("!('pass' in " + admit.CELValue("oldObject.metadata.annotations", "{}") + ")"),
		},
		Access: access.Rules{
			access.Review(), access.Watch("", "namespaces"), access.To("", "namespaces", "create"), access.To("", "configmaps", "list"),
			access.Watch("acme.example.com", "gateways"), access.To("acme.example.com", "widgets", "list", "patch"),
		},
		Features: map[featuregate.Feature]featuregate.FeatureSpec{"Stern": {Default: false, PreRelease: featuregate.Alpha}},
		New: func(d admit.Deps, config []byte) (admit.Handler, error) {
			if string(config) == "bad" {
				return admit.Handler{}, errors.New("bad is bad")
			}
			namespaces := d.Informers.Core().V1().Namespaces().Lister()
			gateways := d.CustomInformers.ForResource(schema.GroupVersionResource{Group: "acme.example.com", Version: "v1", Resource: "gateways"}).Informer().GetStore()
			mutate := func(ctx context.Context, r *admit.Request, pod, _ *corev1.Pod) error {
				if pod == nil {
					return nil
				}
				if name := pod.Annotations["create"]; name != "" {
					ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
					if _, err := d.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
						return fmt.Errorf("creating: %w", err)
					}
				}
				if group, resource, ok := strings.Cut(pod.Annotations["touch"], "/"); ok {
					part := d.Metadata.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).Namespace("shop")
					if _, err := part.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"z"}}}`), metav1.PatchOptions{}); err != nil {
						return fmt.Errorf("patching: %w", err)
					}
				}
				switch pod.Annotations["label"] {
				case "once":
					metav1.SetMetaDataLabel(&pod.ObjectMeta, "seen", "true")
				case "again":
					metav1.SetMetaDataLabel(&pod.ObjectMeta, "seen", pod.Labels["seen"]+"x")
				case "random":
					metav1.SetMetaDataLabel(&pod.ObjectMeta, "seen", "n-abc12")
				}
				return nil
			}
			validate := func(ctx context.Context, r *admit.Request, pod, old *corev1.Pod) error {
				if pod == nil {
					if _, pass := old.Annotations["pass"]; pass {
						return nil
					}
					return admit.Forbidden(r, errors.New("kept: "+old.Name))
				}
				a := pod.Annotations
				if a["warn"] != "" {
					r.Warn("%s", a["warn"])
					r.Audit("warned", a["warn"])
				}
				if a["namespace"] != "" {
					if _, err := namespaces.Get(a["namespace"]); err != nil {
						return fmt.Errorf("looking: %w", err)
					}
				}
				if a["list"] != "" {
					group, resource, _ := strings.Cut(a["list"], "/")
					list, err := d.Dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).Namespace("shop").List(ctx, metav1.ListOptions{LabelSelector: a["selector"], FieldSelector: a["fields"]})
					if err != nil {
						return fmt.Errorf("listing: %w", err)
					}
					r.Warn("%d listed, %d cached", len(list.Items), len(gateways.List()))
				}
				if a["map"] != "" {
					mapping, err := d.RESTMapper.RESTMapping(schema.ParseGroupKind(a["map"]))
					if err != nil {
						return fmt.Errorf("mapping: %w", err)
					}
					r.Warn("%s, %s", mapping.Resource.Resource, mapping.Scope.Name())
					r.Audit("version", mapping.Resource.Version)
				}
				if a["may"] != "" {
					got, err := d.Authorize(ctx, authorization.ReviewFor(r.UserInfo, &authorizationv1.ResourceAttributes{Verb: "use", Resource: a["may"], Name: "it"}))
					if err != nil {
						return err
					}
					if !got.Allowed {
						return admit.Forbidden(r, errors.New("may not: "+got.Reason))
					}
				}
				if after := a["after"]; after != "" && d.Clock.Now().UTC().Format("15:04") < after {
					return admit.Forbidden(r, errors.New("too early"))
				}
				if d.Features.Enabled("Stern") || a["deny"] != "" {
					return admit.Forbidden(r, errors.New("denied by "+r.UserInfo.Username))
				}
				return nil
			}
			return admit.Handler{Mutate: admit.Typed(mutate), Validate: admit.Typed(validate)}, nil
		},
	}
}

// pod returns the YAML of a pod on one line.
func pod(annotations string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, annotations: {" + annotations + "}}}"
}

// cluster returns the YAML of a cluster on one line.
func cluster(objects ...string) string { return "cluster: [" + strings.Join(objects, ", ") + "]\n" }

// object returns the YAML of an object of a custom kind.
func object(kind, name string) string {
	return "{apiVersion: acme.example.com/v1, kind: " + kind + ", metadata: {namespace: shop, name: " + name + "}}"
}

// gateways returns the YAML of a definition whose plural is not the one that client-go guesses from the kind.
func gateways(scope string) string {
	return "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gateways.acme.example.com}, " +
		"spec: {group: acme.example.com, scope: " + scope + ", names: {kind: Gateway, plural: gateways}, versions: [{name: v1}]}}"
}

func create(annotations string) string {
	return "request: {operation: CREATE, object: " + pod(annotations) + "}\n"
}

// TestCheck runs cases with a correct and with a wrong expectation. Wrong is a part of the
// only difference that Check reports.
func TestCheck(t *testing.T) {
	labelled := func(v string) string {
		return strings.Replace(pod("label: "+v), "metadata: {", "metadata: {labels: {seen: \"LABEL\"}, ", 1)
	}
	for name, tc := range map[string]struct{ yaml, wrong string }{
		"allowed":                     {create("") + "want: {allowed: true}", ""},
		"allowed, not denied":         {create("") + "want: {allowed: false, message: nope}", "Got allowed true"},
		"no rule matches":             {"request: {operation: CREATE, object: {apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}}\n" + "want: {allowed: false, message: nope}", "Got allowed true (the API server does not call: no rule of the plugin matches CREATE of apps/v1/deployments), want false"},
		"no condition is true":        {"request: {operation: DELETE, oldObject: " + pod("pass: x") + "}\n" + "want: {allowed: false, message: nope}", "Got allowed true (the API server does not call: the condition of the rule is false), want false"},
		"denied":                      {create("deny: x") + `want: {allowed: false, message: 'pods "web" is forbidden: denied by alice'}`, ""},
		"denied, not allowed":         {create("deny: x") + "want: {allowed: true}", "Got allowed false"},
		"denied with another message": {create("deny: x") + "want: {allowed: false, message: nope}", "Got message"},
		"denied with another code":    {create("deny: x") + `want: {allowed: false, code: 404, reason: NotFound, message: 'pods "web" is forbidden: denied by alice'}`, "Got code 403"},
		"denied, another user":        {"request: {operation: CREATE, user: bob, object: " + pod("deny: x") + "}\n" + `want: {allowed: false, message: 'pods "web" is forbidden: denied by bob'}`, ""},
		"denied at deletion":          {"request: {operation: DELETE, oldObject: " + pod("") + "}\n" + `want: {allowed: false, message: 'pods "web" is forbidden: kept: web'}`, ""},
		"denied by a gate":            {"features: {Stern: true}\n" + create("") + `want: {allowed: false, message: 'pods "web" is forbidden: denied by alice'}`, ""},
		"a gate that is not declared": {"features: {Strict: true}\n" + create("") + "want: {allowed: true}", "unrecognized feature gate: Strict"},
		"not in the phase":            {"phase: mutate\n" + create("deny: x") + "want: {allowed: true}", ""},
		"of a subresource":            {"request: {operation: UPDATE, subresource: status, oldObject: " + pod("") + ", object: " + pod("deny: x") + "}\nwant: {allowed: true}", ""},
		"warned":                      {create("warn: careful") + "want: {allowed: true, warnings: [careful], audit: {warned: careful}}", ""},
		"warned by surprise":          {create("warn: careful") + "want: {allowed: true, audit: {warned: careful}}", "Warnings differ"},
		"annotated by surprise":       {create("warn: careful") + "want: {allowed: true, warnings: [careful]}", "Audit annotations differ"},
		"not warned":                  {create("") + "want: {allowed: true, warnings: [careful]}", "Warnings differ"},
		"changed":                     {create("label: once") + "want: {allowed: true, object: " + strings.Replace(labelled("once"), "LABEL", "true", 1) + "}", ""},
		"changed otherwise":           {create("label: once") + "want: {allowed: true, object: " + strings.Replace(labelled("once"), "LABEL", "false", 1) + "}", "Objects differ"},
		"changed by surprise":         {create("label: once") + "want: {allowed: true}", "want no patch"},
		"not changed":                 {create("") + "want: {allowed: true, object: " + pod("") + "}", "Got no patch"},
		"changed twice":               {create("label: again") + "want: {allowed: true, object: " + strings.Replace(labelled("again"), "LABEL", "x", 1) + "}", "the second call changed"},
		"made up":                     {create("label: random") + "want: {allowed: true, object: " + strings.Replace(labelled("random"), "LABEL", "n-?????", 1) + "}", ""},
		"made up otherwise":           {create("label: random") + "want: {allowed: true, object: " + strings.Replace(labelled("random"), "LABEL", "m-?????", 1) + "}", "Objects differ"},
		"wrote":                       {create("create: new") + "want: {allowed: true, writes: [{verb: create, resource: namespaces, name: new}]}", ""},
		"wrote this":                  {create("create: new") + "want: {allowed: true, writes: [{verb: create, resource: namespaces, name: new, object: {metadata: {name: new}, spec: {}, status: {}}}]}", ""},
		"wrote something else":        {create("create: new") + "want: {allowed: true, writes: [{verb: create, resource: namespaces, name: old}]}", "Got write"},
		"wrote another object":        {create("create: new") + "want: {allowed: true, writes: [{verb: create, resource: namespaces, name: new, object: {}}]}", "The object of write 1"},
		"wrote by surprise":           {create("create: new") + "want: {allowed: true}", "Got 1 writes"},
		"could not decide":            {create("namespace: shop") + "want: {failure: 500}", ""},
		"could not decide otherwise":  {create("namespace: shop") + "want: {failure: 504}", "want HTTP status 504"},
		"could not decide, but did":   {create("") + "want: {failure: 500}", "want HTTP status 500"},
		"decided, but could not":      {create("namespace: shop") + "want: {allowed: true}", "want allowed true"},
		"said why it could not":       {create("namespace: shop") + "want: {failure: 500, message: because}", "Got the failure"},
		"found in the cluster":        {"cluster: [{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]\n" + create("namespace: shop") + "want: {allowed: true}", ""},
		"a resource without objects":  {create("list: acme.example.com/gateways") + "want: {allowed: true, warnings: ['0 listed, 0 cached']}", ""},
		"a kind of its own":           {cluster(object("Widget", "a"), object("Widget", "b")) + create("list: acme.example.com/widgets") + "want: {allowed: true, warnings: ['2 listed, 0 cached']}", ""},
		"one of a kind, by its label": {cluster(object("Widget", "a, labels: {x: z}"), object("Widget", "b")) + create("list: acme.example.com/widgets, selector: x=z") + "want: {allowed: true, warnings: ['1 listed, 0 cached']}", ""},
		"of another namespace":        {cluster(strings.Replace(object("Widget", "a"), "shop", "other", 1)) + create("list: acme.example.com/widgets") + "want: {allowed: true, warnings: ['0 listed, 0 cached']}", ""},
		"another kind of the group":   {cluster(object("Widget", "a")) + create("list: acme.example.com/gateways") + "want: {allowed: true, warnings: ['0 listed, 0 cached']}", ""},
		"by its name":                 {cluster(object("Widget", "a"), object("Widget", "b")) + create("list: acme.example.com/widgets, fields: metadata.name=b") + "want: {allowed: true, warnings: ['1 listed, 0 cached']}", ""},
		"by another field":            {cluster(object("Widget", "a")) + create("list: acme.example.com/widgets, fields: spec.x=b") + "want: {failure: 500, message: 'listing: field label not supported: spec.x'}", ""},
		"by no field":                 {create("list: acme.example.com/widgets, fields: spec.x") + "want: {failure: 500, message: \"listing: invalid selector: 'spec.x'; can't understand 'spec.x'\"}", ""},
		"by no label":                 {create("list: acme.example.com/widgets, selector: '(('") + "want: {failure: 500, message: \"listing: found '(', expected: !, identifier, or 'end of string'\"}", ""},
		"in a version of its own":     {cluster(strings.Replace(gateways("Namespaced"), "[{name: v1}]", "[{name: v1}, {name: v2}, {name: v0, served: false}]", 1), strings.Replace(object("Gateway", "a"), "/v1", "/v2", 1)) + create("list: acme.example.com/gateways") + "want: {allowed: true, warnings: ['1 listed, 1 cached']}", ""},
		"labelled by its metadata":    {cluster(object("Widget", "a")) + create("touch: acme.example.com/widgets") + "want: {allowed: true, writes: [{verb: patch, resource: widgets, namespace: shop, name: a}]}", ""},
		"a plural that is defined":    {cluster(gateways("Namespaced"), object("Gateway", "a")) + create("list: acme.example.com/gateways") + "want: {allowed: true, warnings: ['1 listed, 1 cached']}", ""},
		"a kind of k8s.io/api":        {"cluster: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}]\n" + create("list: /configmaps") + "want: {allowed: true, warnings: ['1 listed, 0 cached']}", ""},
		"a list that fails":           {"errors: [{verb: list, resource: widgets, message: full, code: 507}]\n" + create("list: acme.example.com/widgets") + "want: {failure: 500, message: 'listing: full'}", ""},
		"a kind that is mapped":       {cluster(object("Widget", "a")) + create("map: Widget.acme.example.com") + "want: {allowed: true, warnings: ['widgets, namespace'], audit: {version: v1}}", ""},
		"a kind without namespace":    {"cluster: [{apiVersion: acme.example.com/v1, kind: Widget, metadata: {name: a}}]\n" + create("map: Widget.acme.example.com") + "want: {allowed: true, warnings: ['widgets, root'], audit: {version: v1}}", ""},
		"a definition is mapped":      {cluster(gateways("Cluster")) + create("map: Gateway.acme.example.com") + "want: {allowed: true, warnings: ['gateways, root'], audit: {version: v1}}", ""},
		"a version is preferred":      {cluster(strings.Replace(gateways("Cluster"), "[{name: v1}]", "[{name: v1alpha1}, {name: v1beta2}, {name: v1}, {name: v1beta1}]", 1)) + create("map: Gateway.acme.example.com") + "want: {allowed: true, warnings: ['gateways, root'], audit: {version: v1}}", ""},
		"mapped beside a definition":  {cluster(gateways("Cluster")) + create("map: Deployment.apps") + "want: {allowed: true, warnings: ['deployments, namespace'], audit: {version: v1}}", ""},
		"a kind that is not there":    {create("map: Widget.acme.example.com") + "want: {failure: 500}", ""},
		"a call that fails":           {"errors: [{verb: create, resource: namespaces, message: full, code: 507}]\n" + create("create: new") + "want: {failure: 500, message: 'creating: full'}", ""},
		"may":                         {"authorize: [{verb: use, resource: things, name: it}]\n" + create("may: things") + "want: {allowed: true}", ""},
		"may anything":                {"authorize: [{verb: '*', resource: '*', name: '*'}]\n" + create("may: things") + "want: {allowed: true}", ""},
		"another may":                 {"authorize: [{user: bob, verb: use, resource: things, name: it}]\n" + create("may: things") + `want: {allowed: false, message: 'pods "web" is forbidden: may not: '}`, ""},
		"may not, with a reason":      {"authorize: [{verb: use, resource: things, name: it, allowed: false, reason: because}]\n" + create("may: things") + `want: {allowed: false, message: 'pods "web" is forbidden: may not: because'}`, ""},
		"nobody to ask":               {"authorize: [{verb: use, resource: things, name: it, error: asleep}]\n" + create("may: things") + "want: {failure: 500, message: 'creating a SubjectAccessReview: asleep'}", ""},
		"a call without permission":   {create("list: /secrets") + "want: {allowed: true, warnings: ['0 listed, 0 cached']}", `The plugin made a call for which Plugin.Access lacks {apiGroups: [""], resources: [secrets], verbs: [list]}`},
		"with a grant":                {"grants: [{apiGroups: [''], resources: [secrets], verbs: [list]}]\n" + create("list: /secrets") + "want: {allowed: true, warnings: ['0 listed, 0 cached']}", ""},
		"with a grant of everything":  {"grants: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]\n" + create("list: /secrets") + "want: {allowed: true, warnings: ['0 listed, 0 cached']}", ""},
		"with a grant of some":        {"grants: [{apiGroups: [''], resources: [secrets], verbs: [list], resourceNames: [a]}, {apiGroups: [''], resources: [namespaces], verbs: [watch]}]\n" + create("list: /secrets") + "want: {allowed: true, warnings: ['0 listed, 0 cached']}", "verbs: [list]"},
		"with a grant too much":       {"grants: [{apiGroups: [''], resources: [secrets], verbs: [list]}, {apiGroups: [''], resources: [pods], verbs: [list]}]\n" + create("list: /secrets") + "want: {allowed: true, warnings: ['0 listed, 0 cached']}", "No call of the plugin needs grants[1]"},
		"with another grant":          {"grants: [{apiGroups: [''], resources: [namespaces], verbs: [watch]}]\n" + create("list: /secrets") + "want: {allowed: true, warnings: ['0 listed, 0 cached']}", "verbs: [list]"},
		"an earlier call without it": {`steps:
- request: {operation: CREATE, object: ` + pod("list: /secrets") + `}
  want: {allowed: true, warnings: ['0 listed, 0 cached']}
- request: {operation: CREATE, object: ` + pod("") + `}
  want: {allowed: true}`, "resources: [secrets], verbs: [list]"},
		"bad configuration":  {"config: bad\nwant: {configError: bad is bad}", ""},
		"bad otherwise":      {"config: bad\nwant: {configError: worse}", "Got configuration error"},
		"good configuration": {"want: {configError: bad is bad}", "Got error <nil>"},
		"bad by surprise":    {"config: bad\n" + create("") + "want: {allowed: true}", "The plugin could not be made"},
		"early and late": {`clock: 2026-01-01T10:00:00Z
steps:
- request: {operation: CREATE, object: ` + pod("after: '10:01'") + `}
  want: {allowed: false, message: 'pods "web" is forbidden: too early'}
- after: 1m
  request: {operation: CREATE, object: ` + pod("after: '10:01'") + `}
  want: {allowed: true}`, ""},
		"the second step": {`steps:
- request: {operation: CREATE, object: ` + pod("") + `}
  want: {allowed: true}
- request: {operation: CREATE, object: ` + pod("deny: x") + `}
  want: {allowed: true}`, "Step 2: Got allowed false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // The plugin's informer of a custom kind is polled every 0.1 s.
			c, err := admittest.Parse([]byte("# Why.\n" + tc.yaml))
			if err != nil {
				t.Fatalf("Parsing the case: %v", err)
			}
			problems := c.Check(t.Context(), obedient())
			if tc.wrong == "" && len(problems) > 0 {
				t.Errorf("Got problems %q, want none", problems)
			}
			if tc.wrong != "" && (len(problems) != 1 || !strings.Contains(problems[0], tc.wrong)) {
				t.Errorf("Got problems %q, want one with %q", problems, tc.wrong)
			}
		})
	}
}
