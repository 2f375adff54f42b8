package admittest_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// TestParse covers cases that are invalid because they would check nothing, or something else
// than they seem to check.
func TestParse(t *testing.T) {
	allowed := "want: {allowed: true}\n"
	for name, tc := range map[string]struct{ yaml, wrong string }{
		"no reason":                    {create("") + allowed, "the first line is no comment"},
		"an unknown field":             {"# Why.\n" + create("") + "want: {allowed: true, note: x}", `unknown field "want.note"`},
		"a field twice":                {"# Why.\n" + create("") + allowed + allowed, `key "want" already set`},
		"no request":                   {"# Why.\n" + allowed, "want either request and want, or steps"},
		"no want":                      {"# Why.\n" + create(""), "want either request and want, or steps"},
		"a request and steps":          {"# Why.\n" + create("") + allowed + "steps: []\n", "want either request and want, or steps"},
		"a request of no plugin":       {"# Why.\n" + create("") + "want: {configError: x}", "there is no plugin that could answer it"},
		"an unknown phase":             {"# Why.\nphase: admit\n" + create("") + allowed, `phase "admit"`},
		"no verdict":                   {"# Why.\n" + create("") + "want: {}", "allowed is missing"},
		"a verdict and a failure":      {"# Why.\n" + create("") + "want: {allowed: true, failure: 500}", "neither allowed nor denied"},
		"allowed with a message":       {"# Why.\n" + create("") + "want: {allowed: true, message: fine}", "are those of a denial"},
		"allowed with an added text":   {"# Why.\n" + create("") + "want: {allowed: true, added: more}", "are those of a denial"},
		"failed with an added text":    {"# Why.\n" + create("") + "want: {failure: 500, added: more}", "is the end of a denial"},
		"denied without a message":     {"# Why.\n" + create("") + "want: {allowed: false}", "a denial has a message"},
		"denied with an object":        {"# Why.\n" + create("") + "want: {allowed: false, message: nope, object: {}}", "has no object"},
		"a reason without its code":    {"# Why.\n" + create("") + "want: {allowed: false, message: nope, reason: Invalid}", "wants its code"},
		"an unknown operation":         {"# Why.\nrequest: {operation: PATCH, object: " + pod("") + "}\n" + allowed, `operation "PATCH"`},
		"no object":                    {"# Why.\nrequest: {operation: CREATE}\n" + allowed, "there is no object"},
		"a deletion of a new object":   {"# Why.\nrequest: {operation: DELETE, object: " + pod("") + "}\n" + allowed, "what is deleted is the oldObject"},
		"an object of no kind":         {"# Why.\nrequest: {operation: CREATE, object: {metadata: {name: x}}}\n" + allowed, "no apiVersion or no kind"},
		"an object in no namespace":    {"# Why.\nrequest: {operation: CREATE, object: {apiVersion: v1, kind: Pod, metadata: {name: x}}}\n" + allowed, "no metadata.namespace"},
		"a node, which has none":       {"# Why.\nrequest: {operation: CREATE, object: {apiVersion: v1, kind: Node, metadata: {name: x}}}\n" + allowed, ""},
		"a namespace that is told":     {"# Why.\nrequest: {operation: CREATE, namespace: '', object: {apiVersion: v1, kind: Pod, metadata: {name: x}}}\n" + allowed, ""},
		"a reason of another code":     {"# Why.\n" + create("") + allowed + "parity: {reason: Invalid}\n", "parity.reason goes with parity.code"},
		"a version without a name":     {"# Why.\n" + cluster(strings.Replace(gateways("Cluster"), "name: v1", "served: true", 1)) + create("") + allowed, "cluster[0]: a version of spec.versions has no name"},
		"no plural":                    {"# Why.\n" + cluster(strings.Replace(gateways("Cluster"), "plural", "singular", 1)) + create("") + allowed, "spec.names.plural"},
		"no versions":                  {"# Why.\n" + cluster(strings.Replace(gateways("Cluster"), "[{name: v1}]", "[]", 1)) + create("") + allowed, "spec.versions"},
		"no group":                     {"# Why.\n" + cluster(strings.Replace(gateways("Cluster"), "group: ", "grope: ", 1)) + create("") + allowed, "spec.group"},
		"no kind":                      {"# Why.\n" + cluster(strings.Replace(gateways("Cluster"), "{kind: ", "{kin: ", 1)) + create("") + allowed, "spec.names.kind"},
		"no served version":            {"# Why.\n" + cluster(strings.Replace(gateways("Cluster"), "name: v1", "name: v1, served: false", 1)) + create("") + allowed, "no version of spec.versions is served"},
		"a definition's other name":    {"# Why.\n" + cluster(strings.Replace(gateways("Cluster"), "name: gateways", "name: gateway", 1)) + create("") + allowed, `metadata.name "gateway.acme.example.com" is not gateways.acme.example.com`},
		"an old definition":            {"# Why.\n" + cluster(strings.Replace(gateways("Cluster"), "k8s.io/v1", "k8s.io/v1beta1", 1)) + create("") + allowed, "has the apiVersion apiextensions.k8s.io/v1"},
		"two definitions":              {"# Why.\n" + cluster(gateways("Cluster"), gateways("Cluster")) + create("") + allowed, "cluster[1]: a second CustomResourceDefinition of Gateway.acme.example.com"},
		"a group of k8s.io/api":        {"# Why.\n" + cluster(strings.ReplaceAll(gateways("Cluster"), "acme.example.com", "apps")) + create("") + allowed, `spec.group "apps" is a group of k8s.io/api`},
		"an unknown plural":            {"# Why.\nrequest: {operation: CREATE, object: " + object("Gateway", "x") + "}\n" + allowed, "request 1: the plural of Gateway cannot be guessed"},
		"a plural that is told":        {"# Why.\nrequest: {operation: CREATE, resource: gateways, object: " + object("Gateway", "x") + "}\n" + allowed, ""},
		"a version that is not served": {"# Why.\n" + cluster(gateways("Namespaced")) + "request: {operation: CREATE, object: " + strings.Replace(object("Gateway", "x"), "/v1", "/v2", 1) + "}\n" + allowed, "request 1: the object is of the version v2"},
		"an unknown scope":             {"# Why.\n" + cluster(gateways("Namespace")) + create("") + allowed, `spec.scope "Namespace"`},
		"a case that says all it must": {"# Why.\n" + create("") + allowed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := admittest.Parse([]byte(tc.yaml))
			if tc.wrong == "" && err != nil {
				t.Errorf("Got error %v, want none", err)
			}
			if tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
				t.Errorf("Got error %v, want one with %q", err, tc.wrong)
			}
		})
	}
}

// TestClusterIsStrict covers invalid objects that the fake clients would accept.
func TestClusterIsStrict(t *testing.T) {
	for name, tc := range map[string]struct{ object, wrong string }{
		"an unknown field":                     {"{apiVersion: v1, kind: Namespace, metadata: {name: x}, spek: {}}", `unknown field "spek"`},
		"no name":                              {"{apiVersion: v1, kind: Namespace}", "metadata.name"},
		"no namespace":                         {"{apiVersion: v1, kind: Pod, metadata: {name: x}}", "no metadata.namespace"},
		"a custom kind":                        {"{apiVersion: policy.postern.dev/v1, kind: PodSecurityPolicy, metadata: {name: x}}", ""},
		"a definition":                         {gateways("Cluster"), ""},
		"a defined kind without its namespace": {gateways("Namespaced") + ", {apiVersion: acme.example.com/v1, kind: Gateway, metadata: {name: x}}", "no metadata.namespace"},
		"a defined kind with a namespace":      {gateways("Cluster") + ", {apiVersion: acme.example.com/v1, kind: Gateway, metadata: {name: x, namespace: shop}}", "the scope Cluster"},
		"a kind without a plural":              {"{apiVersion: acme.example.com/v1, kind: Mesh, metadata: {name: x}}", "cluster[0]: the plural of Mesh cannot be guessed: add its CustomResourceDefinition"},
		"a kind of another group":              {"{apiVersion: v1, kind: Deployment, metadata: {name: x, namespace: shop}}", "v1 has no kind Deployment"},
		"a list":                               {"{apiVersion: acme.example.com/v1, kind: WidgetList, metadata: {name: x}, items: []}", "want one object"},
		"a defined kind without a namespace":   {gateways("Cluster") + ", {apiVersion: acme.example.com/v1, kind: Gateway, metadata: {name: x}}", ""},
		"a version that is not defined":        {gateways("Cluster") + ", {apiVersion: acme.example.com/v2, kind: Gateway, metadata: {name: x}}", "cluster[1]: Gateway x is of the version v2, which its CustomResourceDefinition does not serve"},
		"a proper one":                         {"{apiVersion: v1, kind: Namespace, metadata: {name: x}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := admittest.Parse([]byte("# Why.\ncluster: [" + tc.object + "]\n" + create("") + "want: {allowed: true}"))
			if err != nil {
				t.Fatalf("Parsing the case: %v", err)
			}
			_, err = c.Environment()
			if tc.wrong == "" && err != nil {
				t.Errorf("Got error %v, want none", err)
			}
			if tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
				t.Errorf("Got error %v, want one with %q", err, tc.wrong)
			}
		})
	}
}

// TestRequestOfDefinedKind covers requests for a kind that a CustomResourceDefinition of the case defines.
func TestRequestOfDefinedKind(t *testing.T) {
	gateway := "{apiVersion: acme.example.com/v1, kind: Gateway, metadata: {name: x}}"
	for scope, wrong := range map[string]string{"Cluster": "", "Namespaced": "no metadata.namespace"} {
		c, err := admittest.Parse([]byte("# Why.\n" + cluster(gateways(scope)) + "request: {operation: CREATE, object: " + gateway + "}\nwant: {allowed: true}"))
		if wrong != "" {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: got error %v, want one with %q", scope, err, wrong)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: parsing the case: %v", scope, err)
		}
		ar, err := c.Steps[0].Request.Admission()
		if err != nil {
			t.Fatalf("%s: making the request: %v", scope, err)
		}
		if ar.Resource.Resource != "gateways" {
			t.Errorf("%s: got resource %s, want gateways", scope, ar.Resource.Resource)
		}
	}
}

// TestRequest covers the fields of a request that are derived from the object.
func TestRequest(t *testing.T) {
	for name, tc := range map[string]struct{ request, want string }{
		"a pod":             {"operation: CREATE, object: " + pod(""), "v1/Pod v1/pods shop/web"},
		"a status":          {"operation: UPDATE, subresource: status, object: " + pod(""), "v1/Pod v1/pods/status shop/web"},
		"a namespace":       {"operation: CREATE, object: {apiVersion: v1, kind: Namespace, metadata: {name: shop}}", "v1/Namespace v1/namespaces shop/shop"},
		"an ingress":        {"operation: CREATE, object: {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: shop}}", "networking.k8s.io/v1/Ingress networking.k8s.io/v1/ingresses shop/web"},
		"an eviction":       {"operation: CREATE, object: {apiVersion: policy/v1, kind: Eviction, metadata: {name: web, namespace: shop}}", "policy/v1/Eviction v1/pods/eviction shop/web"},
		"kubectl exec":      {"operation: CONNECT, name: web, namespace: shop, object: {apiVersion: v1, kind: PodExecOptions}", "v1/PodExecOptions v1/pods/exec shop/web"},
		"a scale":           {"operation: UPDATE, resource: apps/v1/deployments, subresource: scale, object: {apiVersion: autoscaling/v1, kind: Scale, metadata: {name: web, namespace: shop}}", "autoscaling/v1/Scale apps/v1/deployments/scale shop/web"},
		"many deletions":    {"operation: DELETE, name: '', oldObject: " + pod(""), "v1/Pod v1/pods shop/"},
		"a kind that is no": {"operation: CREATE, kind: v1/Service, object: " + pod(""), "v1/Service v1/services shop/web"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := admittest.Parse([]byte("# Why.\nrequest: {" + tc.request + "}\nwant: {allowed: true}"))
			if err != nil {
				t.Fatalf("Parsing the case: %v", err)
			}
			ar, err := c.Steps[0].Request.Admission()
			if err != nil {
				t.Fatalf("Making the request: %v", err)
			}
			path := func(group, version, rest string) string {
				return strings.TrimPrefix(group+"/"+version+"/"+rest, "/")
			}
			resource := ar.Resource.Resource
			if ar.SubResource != "" {
				resource += "/" + ar.SubResource
			}
			got := path(ar.Kind.Group, ar.Kind.Version, ar.Kind.Kind) + " " + path(ar.Resource.Group, ar.Resource.Version, resource) + " " + ar.Namespace + "/" + ar.Name
			if got != tc.want {
				t.Errorf("Got %s, want %s", got, tc.want)
			}
		})
	}
}
