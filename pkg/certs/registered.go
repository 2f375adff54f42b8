package certs

import (
	"bytes"
	"crypto/x509"
	"maps"
	"slices"
	"time"
)

// registered holds the CAs that every registered bundle contains. Clients verify by these CAs.
type registered struct {
	// known is true after the first update. clients is true if something is registered.
	known, clients bool
	// system is true if a client verifies by the CAs of its system, which this process cannot know.
	system bool
	// since holds, for each CA in all bundles, the time since which all bundles contain it.
	since map[string]time.Time
	// vouched are the CAs that clients have learnt of. A CA stays in vouched if somebody removes it from a bundle for
	// a moment.
	vouched map[string]bool
}

// update takes the bundles that are registered now and reports whether they have changed.
func (r *registered) update(bundles [][]byte, now time.Time) (changed bool) {
	held := map[string]bool{}
	system := false
	bundles = slices.CompactFunc(slices.SortedFunc(slices.Values(bundles), bytes.Compare), bytes.Equal)
	for i, bundle := range bundles {
		in := map[string]bool{}
		for _, crt := range certificates(bundle) {
			if i == 0 || held[string(crt.Raw)] {
				in[string(crt.Raw)] = true
			}
		}
		held = in
		system = system || len(bundle) == 0
	}
	since := map[string]time.Time{}
	for crt := range held {
		at, before := r.since[crt]
		if !before || at.After(now) { // The clock may have been set back.
			at = now
		}
		since[crt] = at
		if !r.known || !r.clients {
			// Clients learn of a webhook and of its bundle at the same time.
			r.vouched[crt] = true
		}
	}
	clients := len(bundles) > 0
	changed = !r.known || clients != r.clients || system != r.system || !maps.Equal(since, r.since)
	r.known, r.clients, r.system, r.since = true, clients, system, since
	return changed
}

// holds reports whether the bundles of all clients contain the CA.
func (r *registered) holds(crt *x509.Certificate) bool {
	_, held := r.since[string(crt.Raw)]
	return held
}

// settled reports whether the bundles of all clients have contained the CA long enough for the clients to learn of
// it. It is true if there are no clients.
func (r *registered) settled(crt *x509.Certificate, now time.Time, settle time.Duration) bool {
	if !r.known {
		return false
	}
	return !r.clients || r.holds(crt) && now.Sub(r.since[string(crt.Raw)]) >= settle
}

// trusts reports whether a server with a certificate of this CA may be ready. If the CA was trusted before, it is
// trusted again as soon as the bundles contain it again.
func (r *registered) trusts(crt *x509.Certificate, now time.Time, settle time.Duration) bool {
	if !r.known || !r.clients || r.system {
		return true
	}
	if r.settled(crt, now, settle) {
		r.vouched[string(crt.Raw)] = true
	}
	return r.holds(crt) && r.vouched[string(crt.Raw)]
}

// certificates returns the certificates of a bundle, or nil if the bundle is invalid.
func certificates(bundle []byte) []*x509.Certificate {
	crts, err := parseCerts(entry{name: "bundle", data: bundle})
	if err != nil {
		return nil
	}
	return crts
}
