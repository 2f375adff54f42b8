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
	"time"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
)

const (
	// maxReview is the size of the largest review, in bytes. A pod has at most 3 MiB.
	maxReview = 4 << 20
	// requestBound bounds the time for a request, and for reading its head.
	requestBound = 10 * time.Second
	// shutdownGrace is the time for open requests at the end.
	shutdownGrace = 5 * time.Second
)

// files are the paths of the certificates of the server.
type files struct{ cert, key, clientCA string }

// tlsConfig returns the configuration for clients with a certificate of the client CA. The certificate of the server is
// read for each connection, so that it can be renewed without a restart.
func (f files) tlsConfig() (*tls.Config, error) {
	if _, err := tls.LoadX509KeyPair(f.cert, f.key); err != nil {
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
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(f.cert, f.key)
			return &cert, err
		},
	}, nil
}

// serve answers reviews until the context ends.
func serve(ctx context.Context, listener net.Listener, f files, p policy) error {
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
	return nil
}

// handler answers POST requests with an ImageReview at /review.
func handler(p policy) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /review", func(w http.ResponseWriter, r *http.Request) {
		var review imagepolicyv1alpha1.ImageReview
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&review)
		if version := imagepolicyv1alpha1.SchemeGroupVersion.String(); err == nil && (review.Kind != "ImageReview" || review.APIVersion != version) {
			err = fmt.Errorf("kind %q of version %q, want ImageReview of %s", review.Kind, review.APIVersion, version)
		}
		if err != nil {
			http.Error(w, "reading the review: "+err.Error(), http.StatusBadRequest)
			return
		}
		answer := imagepolicyv1alpha1.ImageReview{TypeMeta: review.TypeMeta, Status: p.review(review.Spec)}
		slog.InfoContext(r.Context(), "Reviewed", "namespace", review.Spec.Namespace, "images", len(review.Spec.Containers),
			"allowed", answer.Status.Allowed, "reason", answer.Status.Reason)
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			slog.WarnContext(r.Context(), "Could not send an answer", "err", err)
		}
	})
	return mux
}
