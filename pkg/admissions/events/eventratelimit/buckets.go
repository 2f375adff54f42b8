package eventratelimit

import (
	"cmp"
	"crypto/sha256"
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// buckets holds the token buckets of one limit.
type buckets struct {
	limit
	// share is the number of replicas that divide the limit.
	share int32
	clock clock.PassiveClock

	mu sync.Mutex
	// byKey holds the most recently used buckets. Its keys are digests, because the sender of an event
	// controls the length of its fields.
	byKey *lru.Cache
}

func newBuckets(l limit, share int32, c clock.PassiveClock) *buckets {
	size := cmp.Or(l.CacheSize, defaultCacheSize)
	if l.Type == perServer {
		size = 1
	}
	return &buckets{limit: l, share: share, clock: c, byKey: lru.New(int(size))}
}

// take takes a token from the bucket of a key and reports whether the bucket had a token.
func (b *buckets) take(key string) bool { return b.bucket(key).TryAccept() }

// bucket returns the bucket of a key. A key without a bucket, or whose bucket was evicted, gets a full
// bucket. Concurrent first requests of one key share the bucket; kube-apiserver's plugin may give each of
// them a full one.
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

// burst is rounded up: a bucket for less than one token never holds a token.
func (b *buckets) burst() int {
	whole := int(b.Burst / b.share)
	if b.Burst%b.share > 0 {
		whole++
	}
	return whole
}
