package noderestriction_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/featuregate"

	"github.com/postern-dev/postern/internal/conditions"
	"github.com/postern-dev/postern/pkg/admissions/nodes/noderestriction"
	"github.com/postern-dev/postern/pkg/admit"
	"github.com/postern-dev/postern/pkg/router"
)

const (
	failClosed = "failurePolicy: Fail"
	exceptions = failClosed + "\nfailOpenServiceAccounts: [{namespace: kube-system, name: network}, {namespace: shop, name: storage.csi}]"
)

// TestFailurePolicy checks which webhook the API server calls for the requests that nodes need. Those of one
// configuration have different failure policies, and the API server calls one of them at most.
func TestFailurePolicy(t *testing.T) {
	none, open, closed := []string(nil), []string{"nodes-if-available.postern.dev"}, []string{"nodes.postern.dev"}
	// A new Node fails open in the mutating phase, and closed in the validating phase.
	both := slices.Concat(open, closed)
	for _, c := range []struct {
		name    string
		request *admissionv1.AdmissionRequest
		// The webhooks that are called by default, with failClosed, and with exceptions.
		byDefault, failClosed, exceptions []string
	}{
		{"a token", token("shop", "web"), open, closed, closed},
		{"a token of an account that fails open", token("kube-system", "network"), open, closed, open},
		{"a token of the other one", token("shop", "storage.csi"), open, closed, open},
		{"its token for nothing", tokenFor("kube-system", "network", ``), open, closed, closed},
		{"its token for an empty reference", tokenFor("kube-system", "network", `"boundObjectRef":{}`), open, closed, closed},
		{"its token for a Secret", tokenFor("kube-system", "network", `"boundObjectRef":{"apiVersion":"v1","kind":"Secret","name":"a","uid":"u"}`), open, closed, closed},
		{"its token for another kind of pod", tokenFor("kube-system", "network", `"boundObjectRef":{"apiVersion":"v2","kind":"Pod","name":"a","uid":"u"}`), open, closed, closed},
		{"its token for a pod without a name", tokenFor("kube-system", "network", `"boundObjectRef":{"apiVersion":"v1","kind":"Pod","uid":"u"}`), open, closed, closed},
		{"its token for a pod without a uid", tokenFor("kube-system", "network", `"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"a"}`), open, closed, closed},
		{"a token of an account with its name", token("shop", "network"), open, closed, closed},
		{"a token of an account without a name", token("shop", ""), open, closed, closed},
		{"a token of no node", of("alice", token("kube-system", "network")), none, none, none},
		{"a certificate for a pod", podCertificate("shop", "web"), open, closed, closed},
		// Nothing but the plugin checks that the pod has the account.
		{"a certificate for a pod of an account that fails open", podCertificate("kube-system", "network"), open, closed, closed},
		{"a pod", creation("", "Pod", "pods", "kube-system", `{"spec":{"serviceAccountName":"network"}}`), open, closed, closed},
		{"a certificate of a kubelet", certificate("kubernetes.io/kubelet-serving"), open, closed, closed},
		{"a certificate of another signer", certificate("example.com/signer"), none, none, none},
		{"another Node", creation("", "Node", "nodes", "", `{"metadata":{"name":"node-2"}}`), both, both, both},
		{"its own Node", named("node-1", creation("", "Node", "nodes", "", `{"metadata":{"name":"node-1"}}`)), none, none, none},
	} {
		for config, want := range map[string][]string{"": c.byDefault, failClosed: c.failClosed, exceptions: c.exceptions} {
			if diff := cmp.Diff(called(t, config, c.request), want); diff != "" {
				t.Errorf("%s, with the configuration %q: other webhooks are called (- got, + want):\n%s", c.name, config, diff)
			}
		}
	}
}

// TestOwnNamespace checks which webhook the API server calls for the requests of nodes in Postern's own namespace. It is the
// same with every configuration.
func TestOwnNamespace(t *testing.T) {
	const ours = "postern-system"
	none, open, closed := []string(nil), []string{"nodes-own-if-available.postern.dev"}, []string{"nodes-own.postern.dev"}
	both := slices.Concat(closed, closed)
	ofNode := func(node string) string {
		return `{"spec":{"nodeName":"` + node + `"},"metadata":{"labels":{"a":"b"}}}`
	}
	for _, c := range []struct {
		name    string
		request *admissionv1.AdmissionRequest
		want    []string
	}{
		{"a pod", creation("", "Pod", "pods", ours, ofNode("node-1")), closed},
		{"a pod of no node", of("alice", creation("", "Pod", "pods", ours, ofNode("node-1"))), none},
		{"a pod of a user with the name of a node", withoutGroups(creation("", "Pod", "pods", ours, ofNode("node-1"))), none},
		{"an eviction", eviction(ours), closed},
		{"an ephemeral container", update("pods/ephemeralcontainers", ours, ofNode("node-1"), ofNode("node-1")), closed},
		{"the deletion of its pod", deletion(ours, ofNode("node-1")), none},
		{"the deletion of a pod of another node", deletion(ours, ofNode("node-2")), closed},
		{"the status of its pod", update("pods/status", ours, ofNode("node-1"), ofNode("node-1")), none},
		{"the status of a pod of another node", update("pods/status", ours, ofNode("node-2"), ofNode("node-2")), both},
		{"a label in the status of its pod", update("pods/status", ours, `{"spec":{"nodeName":"node-1"},"metadata":{"labels":{"c":"d"}}}`, ofNode("node-1")), both},
		{"a token for a pod", token(ours, "postern"), open},
		{"a token for a pod, of another account", token(ours, "default"), open},
		{"a token for nothing", tokenFor(ours, "postern", ``), closed},
		{"a token for a Secret", tokenFor(ours, "postern", `"boundObjectRef":{"apiVersion":"v1","kind":"Secret","name":"a","uid":"u"}`), closed},
		{"a token for a pod without a uid", tokenFor(ours, "postern", `"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"a"}`), closed},
		{"a token of no node", of("alice", token(ours, "postern")), none},
		{"a certificate for a pod", podCertificate(ours, "postern"), closed},
		{"a Lease", creation("coordination.k8s.io", "Lease", "leases", ours, `{"metadata":{"name":"node-1"}}`), closed},
	} {
		for _, config := range []string{"", failClosed, exceptions} {
			if diff := cmp.Diff(called(t, config, c.request), c.want); diff != "" {
				t.Errorf("%s, with the configuration %q: other webhooks are called (- got, + want):\n%s", c.name, config, diff)
			}
		}
	}
}

// called returns the names of the webhooks that the API server calls, first those of the mutating phase. As package
// registration does, it excludes Postern's own namespace from all webhooks that are not for it.
func called(t *testing.T, config string, ar *admissionv1.AdmissionRequest) []string {
	t.Helper()
	family := admit.Family{Name: "nodes", Plugins: []*admit.Plugin{noderestriction.Plugin}}
	features := featuregate.NewFeatureGate()
	if err := features.Add(noderestriction.Plugin.Features); err != nil {
		t.Fatal(err)
	}
	s, err := family.Service(admit.Deps{Features: features, Namespace: "postern-system"}, map[string][]byte{noderestriction.Plugin.Name: []byte(config)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := conditions.NewRequest(ar)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, phase := range []string{router.PhaseMutate, router.PhaseValidate} {
		webhooks, err := compiler.Of(s, phase)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range webhooks {
			result, err := w.Match(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if result.Called && (router.IsForOwnNamespace(w.Conditions) || ar.Namespace != "postern-system") {
				names = append(names, w.Name)
			}
		}
	}
	return names
}

var compiler = conditions.NewCompiler()

func creation(group, kind, resource, namespace, object string) *admissionv1.AdmissionRequest {
	main, sub, _ := strings.Cut(resource, "/")
	const version = "v1"
	object = strings.Replace(object, "{", `{"apiVersion":"`+strings.TrimPrefix(group+"/"+version, "/")+`","kind":"`+kind+`",`, 1)
	return &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: namespace, SubResource: sub,
		Kind:     metav1.GroupVersionKind{Group: group, Version: version, Kind: kind},
		Resource: metav1.GroupVersionResource{Group: group, Version: version, Resource: main},
		Object:   runtime.RawExtension{Raw: []byte(object)},
		UserInfo: authenticationv1.UserInfo{Username: "system:node:node-1", Groups: []string{"system:nodes"}},
	}
}

func update(resource, namespace, object, old string) *admissionv1.AdmissionRequest {
	ar := creation("", "Pod", resource, namespace, object)
	ar.Operation, ar.OldObject = admissionv1.Update, creation("", "Pod", resource, namespace, old).Object
	return named("a", ar)
}

func eviction(namespace string) *admissionv1.AdmissionRequest {
	ar := creation("policy", "Eviction", "pods/eviction", namespace, `{"deleteOptions":{}}`)
	ar.Resource.Group = ""
	return named("a", ar)
}

func deletion(namespace, old string) *admissionv1.AdmissionRequest {
	ar := update("pods", namespace, old, old)
	ar.Operation, ar.Object = admissionv1.Delete, runtime.RawExtension{}
	return ar
}

func withoutGroups(ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	ar.UserInfo.Groups = nil
	return ar
}

func of(user string, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	ar.UserInfo.Username = user
	return ar
}

func named(name string, ar *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	ar.Name = name
	return ar
}

func token(namespace, account string) *admissionv1.AdmissionRequest {
	return tokenFor(namespace, account, `"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"a","uid":"u"}`)
}

func tokenFor(namespace, account, spec string) *admissionv1.AdmissionRequest {
	ar := creation("authentication.k8s.io", "TokenRequest", "serviceaccounts/token", namespace, `{"spec":{`+spec+`}}`)
	ar.Resource.Group = ""
	return named(account, ar)
}

func podCertificate(namespace, account string) *admissionv1.AdmissionRequest {
	return creation("certificates.k8s.io", "PodCertificateRequest", "podcertificaterequests", namespace, `{"spec":{"serviceAccountName":"`+account+`"}}`)
}

func certificate(signer string) *admissionv1.AdmissionRequest {
	return creation("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", "", `{"spec":{"signerName":"`+signer+`"}}`)
}
