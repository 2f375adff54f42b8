package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// hookManifest registers a webhook that comes after Postern's, because the API server calls mutating ones
// by the order of their names. It is called again when Postern has changed the pod once more.
const hookManifest = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: zz-rewind}
webhooks:
- name: rewind.demo.postern.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  reinvocationPolicy: IfNeeded
  clientConfig: {url: "%[1]s/mutate", caBundle: %[2]s}
  objectSelector: {matchLabels: {demo.postern.dev/rewind: "true"}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods, configmaps]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: zz-rewind}
webhooks:
- name: rewind.demo.postern.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "%[1]s/validate", caBundle: %[2]s}
  objectSelector: {matchLabels: {demo.postern.dev/rewind: "true"}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
`

// marker is a request that the hook receives and that no plugin denies.
const marker = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker", "labels": {"demo.postern.dev/rewind": "true"}}}`

// hook is a webhook server that sets the pull policy of labelled pods back to IfNotPresent. It
// simulates a third-party webhook that conflicts with Postern.
type hook struct {
	server             *http.Server
	mutated, validated atomic.Bool
}

// startHook starts the hook, registers it, and returns when the API server calls it. The API server observes
// webhook configurations in the order in which they are stored, so from then on it also calls Postern.
func (d *demo) startHook(ctx context.Context) error {
	certificate, authority, err := selfSigned()
	if err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h := &hook{}
	h.server = &http.Server{
		Handler: h, ReadHeaderTimeout: probeTimeout,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	d.hook = h
	// The server runs until the demo closes it, so its error is http.ErrServerClosed.
	go func() { _ = h.server.ServeTLS(listener, "", "") }()
	text := fmt.Sprintf(hookManifest, "https://"+listener.Addr().String(), base64.StdEncoding.EncodeToString(authority))
	if _, err := d.kubectl(ctx, text, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("registering the webhook zz-rewind: %w", err)
	}
	return d.await(ctx, "the API server to call the webhooks", d.seen)
}

// seen succeeds once the API server has called both webhooks of the hook.
func (d *demo) seen(ctx context.Context) error {
	code, answer, err := d.api(ctx, http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All", marker)
	if err != nil {
		return err
	}
	if !d.hook.mutated.Load() || !d.hook.validated.Load() {
		return fmt.Errorf("a marker did not reach both halves of zz-rewind: %d: %s", code, answer)
	}
	return nil
}

func (h *hook) close() {
	// Nothing can handle an error here.
	_ = h.server.Close()
}

// review has the fields of an AdmissionReview that the hook needs.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    *struct {
		UID    string `json:"uid"`
		Object struct {
			Kind string `json:"kind"`
			Spec struct {
				Containers []json.RawMessage `json:"containers"`
			} `json:"spec"`
		} `json:"object"`
	} `json:"request,omitempty"`
	Response map[string]any `json:"response"`
}

// ServeHTTP answers a review. It allows every request.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in review
	err := json.NewDecoder(r.Body).Decode(&in)
	if err == nil && in.Request == nil {
		err = errors.New("no request in it")
	}
	if err != nil {
		http.Error(w, "reading the review: "+err.Error(), http.StatusBadRequest)
		return
	}
	response := map[string]any{"uid": in.Request.UID, "allowed": true}
	switch {
	case r.URL.Path == "/validate":
		h.validated.Store(true)
	case in.Request.Object.Kind == "Pod":
		response["patchType"] = "JSONPatch"
		response["patch"] = []byte(rewind(len(in.Request.Object.Spec.Containers)))
	default:
		h.mutated.Store(true)
	}
	w.Header().Set("Content-Type", "application/json")
	// If this write fails, the API server reports the incomplete answer.
	_ = json.NewEncoder(w).Encode(review{APIVersion: in.APIVersion, Kind: in.Kind, Response: response})
}

// rewind returns the JSON patch for the given number of containers.
func rewind(containers int) string {
	operations := make([]string, containers)
	for i := range operations {
		operations[i] = fmt.Sprintf(`{"op": "add", "path": "/spec/containers/%d/imagePullPolicy", "value": "IfNotPresent"}`, i)
	}
	return "[" + strings.Join(operations, ",") + "]"
}
