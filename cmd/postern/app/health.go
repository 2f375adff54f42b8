package app

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
)

// check is one part of readiness.
type check struct {
	name  string
	ready func() error
}

// health answers /livez and /readyz. Readiness does not depend on whether the API
// server answers at the moment: a short outage of the API server must not make a
// working replica unready.
type health struct {
	checks []check
	// infos are shown by ?verbose, and do not affect readiness: the API server may be able to call a replica that
	// cannot call itself.
	infos    []check
	draining atomic.Bool
}

var errDraining = errors.New("shutting down")

// register adds the two paths to mux.
func (h *health) register(mux *http.ServeMux) {
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", h.readyz)
}

func (h *health) readyz(w http.ResponseWriter, req *http.Request) {
	var lines strings.Builder
	ready := true
	for _, c := range append(h.checks, check{"shutdown", h.notDraining}) {
		if err := c.ready(); err != nil {
			ready = false
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", c.name, err)
		} else {
			fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
		}
	}
	for _, c := range h.infos {
		if err := c.ready(); err != nil {
			fmt.Fprintf(&lines, "[!]%s: %v\n", c.name, err)
		} else {
			fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
		}
	}
	_, verbose := req.URL.Query()["verbose"]
	switch {
	case !ready:
		http.Error(w, lines.String()+"readyz check failed", http.StatusServiceUnavailable)
	case verbose:
		fmt.Fprint(w, lines.String()+"readyz check passed\n")
	default:
		fmt.Fprintln(w, "ok")
	}
}

func (h *health) notDraining() error {
	if h.draining.Load() {
		return errDraining
	}
	return nil
}
