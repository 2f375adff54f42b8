package registration

import (
	"encoding/base64"
	"encoding/pem"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// surplusTime is how long a CA stays registered that is not in this replica's bundle. It is the default of
// Deployment.KeepCAs.
const surplusTime = 5 * time.Minute

// surplus remembers the registered CAs that are not in this replica's bundle, and since when. Other running
// replicas may serve certificates of such a CA, and replicas learn of a new CA one after the other. A surplus CA
// therefore stays registered for a while. A replica that needs it adds it to the shared bundle in that time.
type surplus map[string]time.Time

// join adds the registered CAs that must stay to the bundles of want. It forgets the CAs that are no longer
// registered.
func (s surplus) join(want, have map[string]any, now time.Time, keep time.Duration) {
	registered := webhooksByName(have)
	for name, w := range webhooksByName(want) {
		mine, theirs := caBundle(w), caBundle(registered[name])
		if mine == "" || theirs == "" {
			continue
		}
		in := certificates(mine)
		var stay []byte
		for _, block := range blocks(theirs) {
			if in[string(block.Bytes)] {
				continue
			}
			since, known := s[string(block.Bytes)]
			if !known {
				since = now
				s[string(block.Bytes)] = now
			}
			if now.Sub(since) < keep {
				stay = append(stay, pem.EncodeToMemory(block)...)
			}
		}
		joined := concat(mine, stay)
		if sameCAs(joined, theirs) {
			joined = theirs // The order has no meaning.
		}
		_ = unstructured.SetNestedField(asMap(w), joined, "clientConfig", "caBundle")
	}
}

// prune forgets the CAs that no stored configuration holds, and the CAs that are in this replica's bundle.
func (s surplus) prune(ours []byte, stores map[string]cache.Store) {
	registered := map[string]bool{}
	for _, u := range configurations(stores) {
		for _, w := range webhooksByName(u.Object) {
			for c := range certificates(caBundle(w)) {
				registered[c] = true
			}
		}
	}
	mine := certificates(base64.StdEncoding.EncodeToString(ours))
	for c := range s {
		if !registered[c] || mine[c] {
			delete(s, c)
		}
	}
}
