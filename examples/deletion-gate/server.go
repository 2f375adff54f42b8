package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"time"
)

const (
	apiVersion = "deletion.postern.dev/v1alpha1"
	kind       = "DeletionReview"

	// maxReview is the size of the largest review, in bytes.
	maxReview = 1 << 20
	// requestBound bounds the time for a request, and for reading its head.
	requestBound = 10 * time.Second
	// shutdownGrace is the time for open requests at the end.
	shutdownGrace = 5 * time.Second
)

// review is the body of a request, with Request, and of its answer, with Response.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID    string `json:"uid"`
	Gate   string `json:"gate"`
	Action string `json:"action"`
	Pod    struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		NodeName  string `json:"nodeName"`
	} `json:"pod"`
	Cause string `json:"cause"`
	User  string `json:"user"`
}

type response struct {
	UID     string `json:"uid"`
	Ready   bool   `json:"ready"`
	Message string `json:"message,omitempty"`
}

// valid are the gates and UIDs that become names of files.
var valid = regexp.MustCompile(`^[0-9a-z]([0-9a-z-]{0,61}[0-9a-z])?$`)

// files are the paths of the certificates of the server.
type files struct{ cert, key, clientCA string }

// tlsConfig returns the configuration for clients with a certificate of the client CA.
func (f files) tlsConfig() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.cert, f.key, err)
	}
	clients := x509.NewCertPool()
	text, err := os.ReadFile(f.clientCA)
	if err != nil {
		return nil, fmt.Errorf("client CA: %w", err)
	}
	if !clients.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("client CA: %s has no certificate", f.clientCA)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, Certificates: []tls.Certificate{cert},
	}, nil
}

// serve answers reviews until the context ends.
func serve(ctx context.Context, listener net.Listener, f files, p *preparations) error {
	config, err := f.tlsConfig()
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: handler(p), TLSConfig: config,
		ReadHeaderTimeout: requestBound, ReadTimeout: requestBound, WriteTimeout: requestBound,
	}
	stopped := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		_ = server.Shutdown(bounded)
	})
	defer stopped()
	slog.InfoContext(ctx, "Serving", "address", listener.Addr().String())
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	p.wait()
	return nil
}

// handler answers POST requests with a DeletionReview at /review.
func handler(p *preparations) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /review", func(w http.ResponseWriter, r *http.Request) {
		var rv review
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&rv)
		switch q := rv.Request; {
		case err != nil:
		case rv.APIVersion != apiVersion || rv.Kind != kind || q == nil:
			err = fmt.Errorf("kind %q of version %q, want a request in a %s of %s", rv.Kind, rv.APIVersion, kind, apiVersion)
		case !valid.MatchString(q.UID) || !valid.MatchString(q.Gate):
			err = errors.New("the UID or the gate is invalid")
		case q.Action != "Prepare" && q.Action != "Check":
			err = fmt.Errorf("unknown action %q", q.Action)
		}
		if err != nil {
			http.Error(w, "reading the review: "+err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := p.answer(rv.Request)
		if err != nil {
			slog.ErrorContext(r.Context(), "Could not answer", "pod", rv.Request.Pod.Name, "err", err)
			http.Error(w, "the state could not be read or written", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review{APIVersion: apiVersion, Kind: kind, Response: answer}); err != nil {
			slog.WarnContext(r.Context(), "Could not send an answer", "err", err)
		}
	})
	return mux
}
