package eventratelimit

import (
	"cmp"
	"crypto/sha256"
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// buckets are those of one limit.
type buckets struct {
	limit
	// share is how many replicas the limit is divided among.
	share int32
	clock clock.PassiveClock

	mu sync.Mutex
	// byKey has the buckets used last. Its keys are digests, because what a sender of
	// events writes into them may be long.
	byKey *lru.Cache
}

func newBuckets(l limit, share int32, c clock.PassiveClock) *buckets {
	size := cmp.Or(l.CacheSize, defaultCacheSize)
	if l.Type == perServer {
		size = 1
	}
	return &buckets{limit: l, share: share, clock: c, byKey: lru.New(int(size))}
}

// take takes a token out of the bucket of a key and reports whether there was one.
func (b *buckets) take(key string) bool { return b.bucket(key).TryAccept() }

// bucket returns the bucket of a key, a full one if it has none or lost it to
// others. kube-apiserver's plugin may give each of several requests that come at
// the same time a full one.
func (b *buckets) bucket(key string) flowcontrol.PassiveRateLimiter {
	digest := sha256.Sum256([]byte(key))
	b.mu.Lock()
	defer b.mu.Unlock()
	if value, ok := b.byKey.Get(digest); ok {
		if bucket, ok := value.(flowcontrol.PassiveRateLimiter); ok {
			return bucket
		}
	}
	bucket := flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(float32(b.QPS)/float32(b.share), b.burst(), b.clock)
	b.byKey.Add(digest, bucket)
	return bucket
}

// burst is rounded up: in a bucket for less than one token there never is one.
func (b *buckets) burst() int {
	whole := int(b.Burst / b.share)
	if b.Burst%b.share > 0 {
		whole++
	}
	return whole
}
