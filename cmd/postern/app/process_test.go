package app_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// apiServer answers the requests of a Postern outside of a cluster. It has no namespaces, and only the
// webhook configurations that are applied.
type apiServer struct {
	mu      sync.Mutex
	applied []string
	// mutate and validate are the registered URLs of the two halves.
	mutate, validate string
	// pod is the only pod, in protobuf.
	pod []byte
	// stored has the objects of a resource, in JSON, by the path of the resource.
	stored map[string][]string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	kind := map[string]string{"mutatingwebhookconfigurations": "Mutating", "validatingwebhookconfigurations": "Validating"}[strings.Split(req.URL.Path+"////", "/")[4]]
	switch {
	case req.URL.Path == "/version":
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.1"}`)
	case s.pod != nil && strings.HasPrefix(req.URL.Path, "/api/v1/namespaces/ns/pods/"):
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(s.pod)
	case s.stored[req.URL.Path] != nil && req.URL.Query().Get("watch") == "":
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"1"},"items":[%s]}`, strings.Join(s.stored[req.URL.Path], ","))
	case s.stored[req.URL.Path] != nil && req.URL.Query().Get("sendInitialEvents") == "":
		<-req.Context().Done()
	case s.stored[req.URL.Path] != nil:
		var object struct{ Kind string }
		for _, raw := range s.stored[req.URL.Path] {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, raw)
			_ = json.Unmarshal([]byte(raw), &object)
		}
		watchNothing(w, req, "v1", object.Kind)
	case req.Method == http.MethodDelete:
		// An outage must not make a clean shutdown fail.
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"InternalError","code":500,"message":"an outage"}`)
	case kind != "" && req.Method == http.MethodPatch:
		body, _ := io.ReadAll(req.Body)
		s.mu.Lock()
		s.applied = append(s.applied, kind)
		switch url := registeredURL.FindSubmatch(body); {
		case url == nil:
		case kind == "Mutating":
			s.mutate = string(url[1])
		default:
			s.validate = string(url[1])
		}
		s.mu.Unlock()
		_, _ = w.Write(body)
	case kind != "" && strings.Count(req.URL.Path, "/") == 5:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
	case kind != "" && req.URL.Query().Get("watch") != "":
		watchNothing(w, req, "admissionregistration.k8s.io/v1", kind+"WebhookConfiguration")
	case kind != "":
		fmt.Fprintf(w, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%sWebhookConfigurationList","metadata":{"resourceVersion":"1"},"items":[]}`, kind)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
	}
}

// watchNothing ends the initial events of a watch, and sends no others.
func watchNothing(w http.ResponseWriter, req *http.Request, apiVersion, kind string) {
	fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,
		"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`, apiVersion, kind)
	w.(http.Flusher).Flush()
	<-req.Context().Done()
}

var registeredURL = regexp.MustCompile(`"url":"([^"]+)"`)

// urls returns the registered URLs of the two halves, or "".
func (s *apiServer) urls() (mutate, validate string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mutate, s.validate
}

func (s *apiServer) registered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.applied)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("It did not come to this: %s", what)
		}
	}
}

// status returns the status code of a GET, or 0 if there is no answer.
func status(client *http.Client, url string) (int, string) {
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// TestLifeOfAProcess runs a process that starts, registers, serves, and stops.
func TestLifeOfAProcess(t *testing.T) {
	server := &apiServer{}
	api := httptest.NewServer(server)
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	port, healthPort, dir := freePort(t), freePort(t), t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	type result struct {
		code   int
		stderr string
	}
	ended := make(chan result, 1)
	go func() {
		code, _, stderr := runApp(ctx, "serve", "--enable-admission-plugins=AlwaysPullImages", "--disable-admission-plugins=AlwaysPullImages",
			"--kubeconfig="+kubeconfig(t, api.URL), "--bind-address=127.0.0.1", "--secure-port="+port, "--health-bind-address=127.0.0.1:"+healthPort,
			"--webhook-url=https://127.0.0.1:"+port, "--cert-dir="+dir, "--shutdown-delay-duration=2s")
		ended <- result{code, stderr}
	}()
	health := "http://127.0.0.1:" + healthPort
	eventually(t, "it is ready", func() bool { code, _ := status(http.DefaultClient, health+"/readyz"); return code == http.StatusOK })
	for _, part := range []string{"certificates", "informers", "registration", "shutdown"} {
		if _, body := status(http.DefaultClient, health+"/readyz?verbose"); !strings.Contains(body, "[+]"+part+" ok") {
			t.Errorf("Got %s, want it to list %s", body, part)
		}
	}
	eventually(t, "both halves are registered", func() bool { return server.registered() == 2 })
	if code, body := status(http.DefaultClient, health+"/metrics"); code != http.StatusOK || !strings.Contains(body, `postern_webhook_registered{configuration="postern-pods"`) {
		t.Errorf("Got %d and no metric of the registration:\n%s", code, body)
	}
	client := clientOf(t, dir)
	mutate, _ := server.urls()
	if patch := admitPod(t, client, mutate); !strings.Contains(patch, "imagePullPolicy") {
		t.Errorf("Got the patch %s, want the policy in it", patch)
	}
	if resp, err := client.Post("https://127.0.0.1:"+port+"/pods/mutate", "application/json", strings.NewReader("{}")); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("Got %v (%v) at a path that can be guessed, want 404", resp, err)
	} else {
		resp.Body.Close()
	}
	stop()
	eventually(t, "it is not ready any more", func() bool {
		code, body := status(client, "https://127.0.0.1:"+port+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "shutting down")
	})
	r := <-ended
	if r.code != 0 || strings.Contains(r.stderr, "postern: ") || !strings.Contains(r.stderr, "is in both") {
		t.Errorf("Got code %d and stderr\n%s\nwant code 0 and the warning", r.code, r.stderr)
	}
	if code, _ := status(client, "https://127.0.0.1:"+port+"/readyz"); code != 0 {
		t.Errorf("Got %d afterwards, want no answer", code)
	}
}

// clientOf returns a client that trusts the CA in a folder.
func clientOf(t *testing.T, dir string) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	return &http.Client{Transport: transport}
}

// admitPod sends a pod and returns the patch.
func admitPod(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "ns",
			Object: runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"i"}]}}`)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(resp.Body).Decode(&review); err != nil || review.Response == nil || !review.Response.Allowed {
		t.Fatalf("Got %d %+v (%v), want it allowed", resp.StatusCode, review.Response, err)
	}
	return string(review.Response.Patch)
}
