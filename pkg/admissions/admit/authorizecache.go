package admit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// decisionCount and decisionSize bound what is kept: the number of decisions,
	// and the bytes of a question whose decision is kept, most of which its asker
	// chooses.
	decisionCount = 8192
	decisionSize  = 10000
)

// CachedAuthorize returns an AuthorizeFunc that uses a decision, be it a yes or
// a no, again for the same user and the same attributes for so long. So a burst of
// requests, such as that of a controller, asks once, and what was granted or revoked
// meanwhile counts later. What could not be decided is asked again. With an age of
// 0 every question is asked.
//
// Upstream: k8s.io/apiserver/plugin/pkg/authorizer/webhook.
func CachedAuthorize(ask AuthorizeFunc, age time.Duration, clock clock.Clock) AuthorizeFunc {
	if age == 0 {
		return ask
	}
	decisions := cache.NewLRUExpireCacheWithClock(decisionCount, clock)
	return func(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (Decision, error) {
		key, err := json.Marshal(spec)
		if err != nil {
			return Decision{}, fmt.Errorf("encoding a subject access review: %w", err)
		}
		if found, ok := decisions.Get(string(key)); ok {
			if d, ok := found.(Decision); ok {
				return d, nil
			}
		}
		d, err := ask(ctx, spec)
		if err == nil && len(key) <= decisionSize {
			decisions.Add(string(key), d, age)
		}
		return d, err
	}
}
