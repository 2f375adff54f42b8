package ownerreferencespermissionenforcement

import (
	"context"
	"fmt"
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
	// refreshTimeout bounds a discovery. A discovery outlives the request that started it.
	refreshTimeout = 10 * time.Second
)

// kinds finds the resources that a kind maps to. The mapper of the process knows what the API server served up to 30 seconds ago, as in
// kube-apiserver, where owners of a new kind are denied for that time. Here a kind that the mapper does not know is looked up
// in a discovery of its own. Lookups of known kinds do not wait for it.
type kinds struct {
	mapper meta.RESTMapperWithContext
	client discovery.DiscoveryInterfaceWithContext
	clock  clock.PassiveClock
	group  singleflight.Group
	// last is the last discovery. Only the func of the group reads and writes it.
	last discovered
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
		if k.clock.Since(k.last.at) < refreshPause {
			return k.last.mapper, k.last.err
		}
		ctx, cancel := context.WithTimeout(reads.Without(context.WithoutCancel(ctx)), refreshTimeout)
		defer cancel()
		k.last = discovered{at: k.clock.Now()}
		resources, err := restmapper.GetAPIGroupResourcesWithContext(ctx, k.client)
		if err != nil {
			k.last.err = fmt.Errorf("discovery: %w", err)
		}
		k.last.mapper = restmapper.NewDiscoveryRESTMapperWithContext(resources)
		return k.last.mapper, k.last.err
	})
	select {
	case a := <-answer:
		mapper, _ := a.Val.(meta.RESTMapperWithContext)
		return mapper, a.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for discovery: %w", ctx.Err())
	}
}
