package ownerreferencespermissionenforcement_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/authorization"
	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/pkg/admissions/ownership/ownerreferencespermissionenforcement"
	"github.com/postern-dev/postern/pkg/admit"
)

// mapper returns the same mapping for all kinds.
type mapper struct {
	meta.RESTMapper
	mappings []*meta.RESTMapping
	err      error
}

func (m mapper) RESTMappings(schema.GroupKind, ...string) ([]*meta.RESTMapping, error) {
	return m.mappings, m.err
}

// create sends a request for a pod with blocking owners, and returns the access reviews that it caused. The
// user may finalize the objects in allowed.
func create(t *testing.T, m meta.RESTMapper, owners []string, allowed ...string) (asked []string, err error) {
	t.Helper()
	return createWith(t.Context(), t, m, owners, allowed...)
}

func createWith(ctx context.Context, t *testing.T, m meta.RESTMapper, owners []string, allowed ...string) (asked []string, err error) {
	t.Helper()
	client := fake.NewClientset()
	var mu sync.Mutex
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(clienttesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		review, ok := create.GetObject().(*authorizationv1.SubjectAccessReview)
		if !ok {
			return false, nil, nil
		}
		r := review.Spec.ResourceAttributes
		mu.Lock()
		asked = append(asked, fmt.Sprintf("%s/%s %s", r.Resource, r.Name, r.Namespace))
		mu.Unlock()
		for _, name := range allowed {
			review.Status.Allowed = review.Status.Allowed || r.Name == name
		}
		return true, review, nil
	})
	plugin, err := ownerreferencespermissionenforcement.Plugin.New(admit.Deps{Client: client, Authorize: authorization.New(client), RESTMapper: m, Clock: clock.RealClock{}}, nil)
	if err != nil {
		t.Fatalf("Making the plugin: %v", err)
	}
	pod := &corev1.Pod{}
	for _, name := range owners {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "a.b/v1", Kind: "C", Name: name, BlockOwnerDeletion: new(true)})
	}
	err = plugin.Validate(ctx, &admit.Request{Object: pod, AdmissionRequest: &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: "web",
	}})
	return asked, err
}

func mapping(resource string, scope meta.RESTScope) *meta.RESTMapping {
	return &meta.RESTMapping{Resource: schema.GroupVersionResource{Group: "a.b", Version: "v1", Resource: resource}, Scope: scope}
}

func TestAKindThatCouldNotBeLookedUpIsNoDenial(t *testing.T) {
	for name, away := range map[string]error{
		"the API server is away": errors.New("connection refused"),
		"it takes too long":      context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := create(t, mapper{err: away}, []string{"x"})
			var status apierrors.APIStatus
			if !errors.Is(err, away) || errors.As(err, &status) {
				t.Errorf("Got %v, want what the lookup ran into, and no status", err)
			}
		})
	}
}

// busy is an account for which no call may be made.
type busy struct{ reads.Detached }

func (busy) Call(context.Context) (end func(), err error) { return nil, reads.ErrBusy }

// discovering is a mapper that calls the API server.
type discovering struct {
	meta.RESTMapper
	meta.RESTMapperWithContext
}

func (discovering) RESTMappingsWithContext(ctx context.Context, _ schema.GroupKind, _ ...string) ([]*meta.RESTMapping, error) {
	end, err := reads.Call(ctx)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	end()
	return nil, &meta.NoKindMatchError{}
}

// TestDiscoveryWaitsForNoTenant covers the request that fills the mapper, for which the requests of all users wait.
func TestDiscoveryWaitsForNoTenant(t *testing.T) {
	_, err := createWith(reads.NewContext(t.Context(), busy{}), t, discovering{}, []string{"x"})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot find RESTMapping") {
		t.Errorf("Got %v, want a denial because there is no such kind", err)
	}
}

func TestAKindThatIsSeveralResourcesTakesAllOfThem(t *testing.T) {
	both := mapper{mappings: []*meta.RESTMapping{mapping("cs", meta.RESTScopeNamespace), mapping("roots", meta.RESTScopeRoot)}}
	asked, err := create(t, both, []string{"x"}, "x")
	if err != nil {
		t.Errorf("Got %v, want it allowed", err)
	}
	slices.Sort(asked)
	if got, want := strings.Join(asked, ", "), "*/* , cs/x shop, roots/x "; got != want {
		t.Errorf("Got the questions %q, want %q", got, want)
	}
}

func TestNothingIsAskedTwice(t *testing.T) {
	one := mapper{mappings: []*meta.RESTMapping{mapping("cs", meta.RESTScopeNamespace)}}
	owners := []string{}
	for i := range 1000 {
		owners = append(owners, []string{"x", "y"}[i%2])
	}
	asked, err := create(t, one, owners, "x", "y")
	if err != nil || len(asked) != 3 {
		t.Errorf("Got %d questions, %v; want three, about everything and about two owners", len(asked), err)
	}
	asked, err = create(t, one, owners, "y")
	if !apierrors.IsForbidden(err) || len(asked) != 3 {
		t.Errorf("Got %d questions, %v; want three and a denial", len(asked), err)
	}
}

// TestAccessReviewsAreBounded covers users who give an object very many owners.
func TestAccessReviewsAreBounded(t *testing.T) {
	one := mapper{mappings: []*meta.RESTMapping{mapping("cs", meta.RESTScopeNamespace)}}
	owners := make([]string, 12_000)
	for i := range owners {
		owners[i] = fmt.Sprint("owner-", i)
	}
	asked, err := create(t, one, owners, owners...)
	const want = `pods "web" is forbidden: cannot set blockOwnerDeletion for 12000 owners in one request: the limit is 100 for users who can't set finalizers on all resources`
	if err == nil || err.Error() != want || len(asked) != 1 {
		t.Errorf("Got %d questions, %v; want one, about everything, and %s", len(asked), err, want)
	}
	if asked, err = create(t, one, owners, append(owners, "*")...); err != nil || len(asked) != 1 {
		t.Errorf("Got %d questions, %v; want one, about everything, and no denial", len(asked), err)
	}
	if asked, err = create(t, one, owners[:100], owners...); err != nil || len(asked) != 101 {
		t.Errorf("Got %d questions, %v; want one for each owner, and one about everything", len(asked), err)
	}
	// The denial names the first denied owner.
	asked, err = create(t, one, owners[:100], owners[:20]...)
	if !apierrors.IsForbidden(err) || len(asked) >= 100 {
		t.Errorf("Got %d questions, %v; want no more after the first denial", len(asked), err)
	}
}
