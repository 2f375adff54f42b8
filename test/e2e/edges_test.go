package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/internal/edges"
	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/internal/seed"
	posternpolicyv1 "github.com/postern-dev/postern/pkg/apis/policy/v1"
	settingsv1alpha1 "github.com/postern-dev/postern/pkg/apis/settings/v1alpha1"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/e2e"
)

// edgeWorkers is the number of objects that are sent at a time.
const edgeWorkers = 4

// TestObjectsAtTheEdge sends a hundred of the objects of TestAllObjectsAtTheEdge.
func TestObjectsAtTheEdge(t *testing.T) {
	t.Parallel()
	sendEdges(t, 2)
}

// TestAllObjectsAtTheEdge runs every plugin, and has users who write into one field of an object what is hardest to decode,
// to measure or to look up. Postern must decide about each of these objects, valid or not.
func TestAllObjectsAtTheEdge(t *testing.T) {
	ring.Second(t, "some thousand objects")
	suite.Alone(t)
	sendEdges(t, 30)
}

// edgeRoles lets nodes use the PodSecurityPolicy of AllowPods, and alice block the deletion of some owners.
const edgeRoles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: any-pod-of-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: any-pod}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: edge-owners}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: ["*"]}
- {apiGroups: ["", apps], resources: [pods/finalizers, replicasets/finalizers], verbs: [update]}
- {apiGroups: [settings.postern.dev], resources: [podpresets], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: edge-owners}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edge-owners}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`

// sendEdges sends some random changes of each example to an API server that calls a Postern with every plugin.
func sendEdges(t *testing.T, perExample int) {
	t.Helper()
	// Controllers go on for minutes with what they cannot process, so no other test gets this control plane.
	c := suite.Start(t, controlplane.Options{ControllerManager: true})
	c.AllowPods(t)
	c.Apply(t, edgeRoles)
	o := suite.AllPlugins(t)
	o.Flags = append(o.Flags, "--failure-policy=Fail")
	p := startServing(t, c, o)
	examples := edgeExamples(t, c)
	chance := seed.Chance(t)
	var work sync.WaitGroup
	jobs := make(chan func())
	for range edgeWorkers {
		work.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	for _, e := range examples {
		// What is not admitted as it is would not get through all plugins with a change either.
		// A controller may change what a user replaces, so that the user seems to have changed it back.
		e2e.Eventually(t, settleBound, fmt.Sprint(e, ", unchanged, is accepted"), func(ctx context.Context) error {
			if err := e.send(ctx, edges.Change{}, "unchanged"); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
		for i, change := range edges.Some(e.object, chance, perExample) {
			jobs <- func() { e.count(t, change, e.send(t.Context(), change, fmt.Sprint(i))) }
		}
	}
	close(jobs)
	work.Wait()
	decidesAll(t, p)
	accepted, sent := 0, 0
	for _, e := range examples {
		accepted += e.accepted
		sent += e.accepted + e.denied + e.refused + e.errors
		t.Logf("%s: %d accepted, %d denied by a webhook, %d refused by the API server, %d errors of the API server", e, e.accepted, e.denied, e.refused, e.errors)
	}
	if accepted < sent/5 {
		t.Errorf("The API server accepted %d of %d objects, want more: the others reach half of the plugins", accepted, sent)
	}
}

// edgeExample is an object that Postern admits and that the API server accepts, and what became of the changed ones.
type edgeExample struct {
	object runtime.Object
	user   controlplane.User
	client rest.Interface
	// namespace is empty for objects without one.
	resource, namespace string
	// name is the name of an object that exists, if the example goes to it or to its subresource, in a dry run.
	name, subresource string
	// replaces is true if that is replaced instead of created. The change is then made to the current one.
	replaces bool

	mu                                sync.Mutex
	accepted, denied, refused, errors int
}

func (e *edgeExample) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%T of %s to %s/%s", e.object, e.user, e.resource, e.subresource), "/")
}

// count counts the object by the error of its request. A failure of Postern fails the test.
func (e *edgeExample) count(t *testing.T, change edges.Change, err error) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil:
		e.accepted++
	case failedToCall(err):
		t.Errorf("%s, %s: %.1000v", e, change, err)
	case strings.Contains(err.Error(), "denied the request"):
		e.denied++
	case apierrors.IsInternalError(err), !errors.As(err, &status): // without a status, it has panicked
		e.errors++
		t.Logf("%s, %s: %.300v", e, change, err)
	default:
		e.refused++
	}
}

func failedToCall(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed calling webhook")
}

func (e *edgeExample) scope(r *rest.Request) *rest.Request {
	return r.NamespaceIfScoped(e.namespace, e.namespace != "").Resource(e.resource)
}

// send sends the changed object to the object that exists, or creates it, changes its labels and deletes it. It returns the
// error of the first request, or that a later request could not be decided. suffix makes the name of a created object
// another one if the name ends with "edge".
func (e *edgeExample) send(ctx context.Context, change edges.Change, suffix string) error {
	switch {
	case e.replaces:
		current, err := e.scope(e.client.Get()).Name(e.name).Do(ctx).Get()
		if err != nil {
			return err
		}
		m := metaOf(current)
		m.SetResourceVersion("")
		m.SetManagedFields(nil)
		return e.scope(e.client.Put()).Name(e.name).SubResource(e.subresource).Param("dryRun", metav1.DryRunAll).Body(change.Make(current)).Do(ctx).Error()
	case e.subresource != "":
		return e.scope(e.client.Post()).Name(e.name).SubResource(e.subresource).Param("dryRun", metav1.DryRunAll).Body(change.Make(e.object)).Do(ctx).Error()
	}
	object := change.Make(e.object)
	if m := metaOf(object); strings.HasSuffix(m.GetName(), "edge") {
		m.SetName(m.GetName() + "-" + suffix)
	}
	stored, err := e.scope(e.client.Post()).Body(object).Do(ctx).Get()
	if err != nil {
		return err
	}
	m := metaOf(stored)
	m.SetLabels(map[string]string{"changed": "true"})
	m.SetResourceVersion("") // a controller may have written it
	name := m.GetName()
	updated := e.scope(e.client.Put()).Name(name).Body(stored).Do(ctx).Error()
	deleted := e.scope(e.client.Delete()).Name(name).Body(&metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}).Do(ctx).Error()
	if stored, err = e.scope(e.client.Get()).Name(name).Do(ctx).Get(); err == nil {
		metaOf(stored).SetFinalizers(nil)
		err = e.scope(e.client.Put()).Name(name).Body(stored).Do(ctx).Error()
	}
	for _, err := range []error{updated, deleted, err} {
		if failedToCall(err) {
			return err
		}
	}
	return nil
}

func metaOf(object runtime.Object) metav1.Object {
	m, err := meta.Accessor(object)
	if err != nil {
		panic(err) // every object of the API has metadata
	}
	return m
}

// edgeCodecs returns those of the kinds of Kubernetes, and of Postern's kinds that users write.
func edgeCodecs(t *testing.T) serializer.CodecFactory {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, settingsv1alpha1.AddToScheme, posternpolicyv1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(kinds)
}

// edgeExamples returns what the admin, a node and alice create, and what they write of objects that exist.
func edgeExamples(t *testing.T, c *e2e.Cluster) []*edgeExample {
	t.Helper()
	codecs := edgeCodecs(t)
	namespace := c.Namespace(t)
	node, err := c.Admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []*edgeExample
	for _, from := range []struct {
		user controlplane.User
		file string
	}{{controlplane.Admin, "admin"}, {controlplane.Node, "node"}, {controlplane.Alice, "alice"}} {
		text, err := os.ReadFile("testdata/edges/" + from.file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		manifests := strings.NewReplacer("NAMESPACE", namespace, "UID", string(node.UID)).Replace(string(text))
		for document := range strings.SplitSeq(manifests, "\n---\n") {
			object, gvk, err := codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
			if err != nil {
				t.Fatalf("%v in %s", err, document)
			}
			if csr, ok := object.(*certificatesv1.CertificateSigningRequest); ok {
				csr.Spec.Request = signingRequest(t, "edge", csr.Spec.SignerName).Spec.Request
			}
			resource, _ := meta.UnsafeGuessKindToResource(*gvk)
			out = append(out, &edgeExample{object: object, user: from.user, resource: resource.Resource, namespace: metaOf(object).GetNamespace()})
		}
	}
	out = append(out, edgeExamplesOfExisting(t, c, namespace)...)
	for _, e := range out {
		version := corev1.SchemeGroupVersion
		if e.name == "" {
			version = e.object.GetObjectKind().GroupVersionKind().GroupVersion()
		}
		config := c.Config(t, e.user)
		config.GroupVersion, config.APIPath = &version, "/apis"
		if version.Group == "" {
			config.APIPath = "/api"
		}
		config.NegotiatedSerializer = codecs.WithoutConversion()
		config.ContentType = runtime.ContentTypeProtobuf // it has more values than JSON
		if strings.HasSuffix(version.Group, ".postern.dev") {
			config.ContentType = runtime.ContentTypeJSON
		}
		if e.client, err = rest.RESTClientFor(config); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// edgeExamplesOfExisting returns what is written of a pod on a node, of a pod that waits for a node, of the node, and of a
// service account.
func edgeExamplesOfExisting(t *testing.T, c *e2e.Cluster, namespace string) []*edgeExample {
	t.Helper()
	running, waiting := pod("running"), pod("waiting")
	running.Spec.NodeName = nodeName
	running.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "a", Path: "a"}},
	}}}}}
	for _, p := range []**corev1.Pod{&running, &waiting} {
		var err error
		if *p, err = c.Admin.CoreV1().Pods(namespace).Create(t.Context(), *p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		(*p).ResourceVersion, (*p).ManagedFields = "", nil
	}
	node, err := c.Admin.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.ResourceVersion, node.ManagedFields = "", nil
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: waiting.Name, Namespace: namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: running.Name, Namespace: namespace}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(3600)), Audiences: []string{"a"},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: running.Name, UID: running.UID},
	}}
	var out []*edgeExample
	for _, user := range []controlplane.User{controlplane.Admin, controlplane.Node} {
		out = append(
			out,
			&edgeExample{user: user, object: node, resource: "nodes", name: nodeName, replaces: true},
			&edgeExample{user: user, object: node, resource: "nodes", name: nodeName, subresource: "status", replaces: true},
			&edgeExample{user: user, object: running, resource: "pods", namespace: namespace, name: running.Name, subresource: "status", replaces: true},
			&edgeExample{user: user, object: eviction, resource: "pods", namespace: namespace, name: running.Name, subresource: "eviction"},
			&edgeExample{user: user, object: token, resource: "serviceaccounts", namespace: namespace, name: "default", subresource: "token"},
		)
	}
	return append(
		out,
		&edgeExample{user: controlplane.Admin, object: running, resource: "pods", namespace: namespace, name: running.Name, replaces: true},
		&edgeExample{user: controlplane.Admin, object: running, resource: "pods", namespace: namespace, name: running.Name, subresource: "ephemeralcontainers", replaces: true},
		&edgeExample{user: controlplane.Admin, object: running, resource: "pods", namespace: namespace, name: running.Name, subresource: "resize", replaces: true},
		&edgeExample{user: controlplane.Admin, object: binding, resource: "pods", namespace: namespace, name: waiting.Name, subresource: "binding"},
	)
}
