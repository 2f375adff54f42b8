package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// startAPI serves an API server until ctx is done, and returns its URL.
func startAPI(ctx context.Context, handler http.Handler) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listening for the API server: %w", err)
	}
	srv := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		// The stub ends no later than this process.
		_ = srv.Serve(l)
	}()
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	return "http://" + l.Addr().String(), nil
}

// quotas has room for the measured pods, so ResourceQuota measures and adds, and neither denies nor warns.
const quotas = `{"kind":"ResourceQuotaList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{
	"metadata":{"name":"team","namespace":"shop","resourceVersion":"1"},
	"status":{
		"hard":{"pods":"1000","requests.cpu":"1000","requests.memory":"1000Gi","limits.memory":"1000Gi"},
		"used":{"pods":"10","requests.cpu":"10","requests.memory":"10Gi","limits.memory":"10Gi"}}}]}`

// namespaces and serviceAccounts are those of the measured pods, which conform to the Pod Security Standard of the
// namespace.
const (
	namespaces = `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{
	"metadata":{"name":"shop","resourceVersion":"1","labels":{
		"kubernetes.io/metadata.name":"shop","pod-security.kubernetes.io/enforce":"baseline"}},
	"status":{"phase":"Active"}}]}`
	serviceAccounts = `{"kind":"ServiceAccountList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[
	{"metadata":{"name":"checkout","namespace":"shop","resourceVersion":"1"}},
	{"metadata":{"name":"default","namespace":"shop","resourceVersion":"1"}}]}`
)

// serveAPI is a stub of an API server. It reports a version, lists the namespace of the pods with its service accounts
// and one ResourceQuota, and no other objects, and accepts every apply.
func serveAPI(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := req.URL.Query()
	switch {
	case req.URL.Path == "/version":
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.1"}`)
	case req.Method == http.MethodPatch:
		// Return the applied object as the stored object. The server discards what of the body is unread when the answer
		// begins.
		body, err := io.ReadAll(req.Body)
		if err == nil {
			_, _ = w.Write(body)
		}
	case query.Get("sendInitialEvents") == "true":
		// The client falls back to list and watch.
		status(w, http.StatusUnprocessableEntity, "Invalid")
	case query.Get("watch") == "true":
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	case req.Method != http.MethodGet || !isList(req.URL.Path):
		status(w, http.StatusNotFound, "NotFound")
	default:
		switch resource := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]; resource {
		case "namespaces":
			fmt.Fprint(w, namespaces)
		case "serviceaccounts":
			fmt.Fprint(w, serviceAccounts)
		case "resourcequotas":
			fmt.Fprint(w, quotas)
		default:
			fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
		}
	}
}

// isList reports whether a path names a resource, of a namespace or of the cluster, and not an object.
func isList(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "apis" {
		parts = parts[1:]
	}
	return len(parts) == 3 || len(parts) == 5 && parts[2] == "namespaces"
}

func status(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}
