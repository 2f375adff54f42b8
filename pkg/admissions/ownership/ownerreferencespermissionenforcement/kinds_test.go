package ownerreferencespermissionenforcement

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/reads"
)

// apiServer is the discovery of an API server with kinds of the group a.b. A discovery takes a second.
type apiServer struct {
	discovery.DiscoveryInterfaceWithContext
	mu    sync.Mutex
	kinds []string
	err   error
	calls int
}

func (s *apiServer) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	end, err := reads.Call(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	s.mu.Lock()
	s.calls++
	list := &metav1.APIResourceList{GroupVersion: "a.b/v1"}
	for _, kind := range s.kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: kind + "s", Kind: kind, Namespaced: true})
	}
	err = s.err
	s.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return nil, nil, err
	}
	version := metav1.GroupVersionForDiscovery{GroupVersion: "a.b/v1", Version: "v1"}
	return []*metav1.APIGroup{{Name: "a.b", Versions: []metav1.GroupVersionForDiscovery{version}}}, []*metav1.APIResourceList{list}, err
}

func (s *apiServer) serve(err error, kinds ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds, s.err = kinds, err
}

// unaware is a mapper of the process that knows the kind Known, and none that was added later.
type unaware struct{ meta.RESTMapperWithContext }

func (unaware) RESTMappingsWithContext(_ context.Context, kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	if kind.Kind == "Known" {
		return []*meta.RESTMapping{{}}, nil
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
}

// fixture has an API server that serves Known and New.
type fixture struct {
	*kinds
	server *apiServer
}

func newFixture() fixture {
	s := &apiServer{kinds: []string{"Known", "New"}}
	return fixture{&kinds{mapper: unaware{}, client: s, clock: clock.RealClock{}}, s}
}

func (f fixture) find(ctx context.Context, kind string) error {
	_, err := f.mappings(ctx, schema.GroupKind{Group: "a.b", Kind: kind}, "v1")
	return err
}

// check looks a kind up and compares the error, and the number of discoveries so far.
func (f fixture) check(t *testing.T, kind string, is func(error) bool, calls int) {
	t.Helper()
	if err := f.find(t.Context(), kind); !is(err) || f.server.calls != calls {
		t.Errorf("Got %v for the kind %s after %d discoveries, want %d", err, kind, f.server.calls, calls)
	}
}

func found(err error) bool { return err == nil }

func TestNewKindsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.check(t, "Known", found, 0)
		f.check(t, "New", found, 1)
		f.check(t, "Unknown", meta.IsNoMatchError, 1)
		f.check(t, "Known", found, 1)

		f.server.serve(nil, "Known", "New", "Newer")
		f.check(t, "Newer", meta.IsNoMatchError, 1)
		time.Sleep(refreshPause)
		f.check(t, "Newer", found, 2)
	})
}

func TestUnknownKindsShareADiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		var requests sync.WaitGroup
		for range 100 {
			requests.Go(func() {
				if err := f.find(t.Context(), "Unknown"); !meta.IsNoMatchError(err) {
					t.Errorf("Got %v, want that there is no such kind", err)
				}
			})
		}
		synctest.Wait()
		f.check(t, "Known", found, 1)
		requests.Wait()
		f.check(t, "Unknown", meta.IsNoMatchError, 1)
	})
}

// TestAFailedDiscoveryIsNoDenial covers an API server that does not answer, and one whose discovery lacks a group.
func TestAFailedDiscoveryIsNoDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		away := errors.New("connection refused")
		f.server.serve(away)
		failed := func(err error) bool { return errors.Is(err, away) }
		f.check(t, "New", failed, 1)
		f.check(t, "New", failed, 1)
		f.check(t, "Known", found, 1)

		time.Sleep(refreshPause)
		f.server.serve(&discovery.ErrGroupDiscoveryFailed{}, "New")
		f.check(t, "New", found, 2)
		f.check(t, "Unknown", meta.IsNoMatchError, 2)
	})
}

// noCalls is an account for which no call may be made.
type noCalls struct{ reads.Detached }

func (noCalls) Call(context.Context) (end func(), err error) { return nil, reads.ErrBusy }

// TestADiscoveryOutlivesItsRequest covers a user with a short time-out, and one who has used up the calls of its tenant. Others
// wait for their discovery.
func TestADiscoveryOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		ctx, cancel := context.WithTimeout(reads.NewContext(t.Context(), noCalls{}), time.Second/2)
		defer cancel()
		if err := f.find(ctx, "New"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Got %v, want that the request ended before the discovery", err)
		}
		f.check(t, "New", found, 1)
	})
}
