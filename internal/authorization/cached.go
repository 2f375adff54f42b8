package authorization

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// maxDecisions is the largest number of cached decisions.
	maxDecisions = 8192
	// maxKeyBytes is the largest size of an encoded review whose decision is cached, in bytes. The user who sends a
	// request chooses most of these bytes.
	maxKeyBytes = 10000
)

// Cached returns an AuthorizeFunc that caches the decisions of ask, allowed or not, per user and attributes for ttl. A
// controller that creates many objects in a burst causes one review. A change of its permissions takes effect after ttl
// at the latest. Errors are not cached. A ttl of 0 disables the cache.
//
// Upstream: k8s.io/apiserver/plugin/pkg/authorizer/webhook.
func Cached(ask admit.AuthorizeFunc, ttl time.Duration, clock clock.Clock) admit.AuthorizeFunc {
	if ttl == 0 {
		return ask
	}
	decisions := cache.NewLRUExpireCacheWithClock(maxDecisions, clock)
	return func(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (admit.Decision, error) {
		key, err := json.Marshal(spec)
		if err != nil {
			return admit.Decision{}, fmt.Errorf("encoding a SubjectAccessReview: %w", err)
		}
		if found, ok := decisions.Get(string(key)); ok {
			if d, ok := found.(admit.Decision); ok {
				return d, nil
			}
		}
		d, err := ask(ctx, spec)
		if err == nil && len(key) <= maxKeyBytes {
			decisions.Add(string(key), d, ttl)
		}
		return d, err
	}
}
