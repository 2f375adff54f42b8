package ownerreferencespermissionenforcement

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/internal/reads"
)

const (
	// refreshPause is the shortest time between two discoveries because of unknown kinds. Users choose kinds, and a discovery
	// returns all resources of the API server.
	refreshPause = 5 * time.Second
	// refreshTimeout bounds a discovery. It outlives the request that started it.
	refreshTimeout = 10 * time.Second
)

// kinds finds the resources of kinds. The mapper of the process knows what the API server served up to 30 seconds ago, as in
// kube-apiserver, where owners of a new kind are denied for that time. Here a kind that the mapper does not know is looked up
// in a discovery of its own. Lookups of known kinds do not wait for it.
type kinds struct {
	mapper meta.RESTMapperWithContext
	client discovery.DiscoveryInterfaceWithContext
	clock  clock.PassiveClock
	group  singleflight.Group
	last   atomic.Pointer[discovered]
}

// discovered is the result of a discovery.
type discovered struct {
	// at is when the discovery began.
	at     time.Time
	mapper meta.RESTMapperWithContext
	err    error
}

// mappings returns the resources that a kind may map to, or an error for which meta.IsNoMatchError is true if there are none.
func (k *kinds) mappings(ctx context.Context, kind schema.GroupKind, version string) ([]*meta.RESTMapping, error) {
	// All requests wait for the one that fills the mapper.
	found, err := k.mapper.RESTMappingsWithContext(reads.Without(ctx), kind, version)
	if !meta.IsNoMatchError(err) {
		return found, err
	}
	fresh, err := k.refreshed(ctx)
	if err != nil {
		return nil, err
	}
	return fresh.RESTMappingsWithContext(ctx, kind, version)
}

// refreshed returns a mapper for what the API server serves now, or served at most refreshPause ago. Concurrent requests share
// one discovery. API groups whose server is away are missing, as in kube-apiserver, and are no error.
func (k *kinds) refreshed(ctx context.Context) (meta.RESTMapperWithContext, error) {
	answer := k.group.DoChan("", func() (any, error) {
		if last := k.last.Load(); last != nil && k.clock.Since(last.at) < refreshPause {
			return last.mapper, last.err
		}
		ctx, cancel := context.WithTimeout(reads.Without(context.WithoutCancel(ctx)), refreshTimeout)
		defer cancel()
		now := &discovered{at: k.clock.Now()}
		resources, err := restmapper.GetAPIGroupResourcesWithContext(ctx, k.client)
		if err != nil {
			now.err = fmt.Errorf("discovery: %w", err)
		}
		now.mapper = restmapper.NewDiscoveryRESTMapperWithContext(resources)
		k.last.Store(now)
		return now.mapper, now.err
	})
	select {
	case a := <-answer:
		mapper, _ := a.Val.(meta.RESTMapperWithContext)
		return mapper, a.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for discovery: %w", ctx.Err())
	}
}
