package admittest_test

import (
	"context"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/pkg/admit/admittest"
)

// TestPermissions compares calls with the permissions that an API server would ask for. The fakes answer some of these calls
// with an error, which does not matter.
func TestPermissions(t *testing.T) {
	web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	for want, call := range map[string]func(context.Context, *admittest.Environment){
		`[{apiGroups: [""], resources: [pods], verbs: [deletecollection]}]`: func(ctx context.Context, e *admittest.Environment) {
			_ = e.Client.CoreV1().Pods("shop").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		`[{apiGroups: ["apps"], resources: [deployments], verbs: [deletecollection]}]`: func(ctx context.Context, e *admittest.Environment) {
			_ = e.Dynamic.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		`[{apiGroups: [""], resources: [namespaces/finalize], verbs: [update]}]`: func(ctx context.Context, e *admittest.Environment) {
			_, _ = e.Client.CoreV1().Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.UpdateOptions{})
		},
		`[{apiGroups: [""], resources: [services/proxy], verbs: [get]}]`: func(_ context.Context, e *admittest.Environment) {
			e.Client.CoreV1().Services("shop").ProxyGet("http", "web", "80", "/", nil)
		},
		`[{apiGroups: [""], resources: [pods/status], verbs: [patch]}]`: func(ctx context.Context, e *admittest.Environment) {
			_, _ = e.Client.CoreV1().Pods("shop").Patch(ctx, "web", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
		},
		`[{apiGroups: [""], resources: [pods/eviction], verbs: [create]}]`: func(ctx context.Context, e *admittest.Environment) {
			_ = e.Client.PolicyV1().Evictions("shop").Evict(ctx, &policyv1.Eviction{ObjectMeta: web.ObjectMeta})
		},
		`[{apiGroups: [""], resources: [pods], verbs: [list]} {apiGroups: [""], resources: [pods], verbs: [watch]}]`: func(ctx context.Context, e *admittest.Environment) {
			e.Informers.Core().V1().Pods().Informer()
			_ = e.Sync(ctx)
		},
		`[{apiGroups: [""], resources: [pods], verbs: [list]}]`: func(ctx context.Context, e *admittest.Environment) {
			_, _ = e.Client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
			e.ClearActions()
		},
		"[]": func(ctx context.Context, e *admittest.Environment) {
			_, _ = e.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
			_, _ = e.Client.Discovery().ServerVersion()
			_, _ = e.Client.Discovery().ServerResourcesForGroupVersion("v1")
		},
	} {
		c, err := admittest.Parse([]byte("# Why.\n" + create("") + "want: {allowed: true}"))
		if err != nil {
			t.Fatal(err)
		}
		e, err := c.Environment()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		call(ctx, e)
		if got := fmt.Sprint(e.Permissions()); got != want {
			t.Errorf("Got %s, want %s", got, want)
		}
		cancel()
		e.Informers.Shutdown()
		e.Close()
	}
}
