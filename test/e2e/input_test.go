package e2e_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/postern-dev/postern/pkg/router"
	"github.com/postern-dev/postern/test/e2e"
)

// review is an AdmissionReview of a pod that the plugin mutates.
const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
	"uid": "11111111-2222-3333-4444-555555555555",
	"kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
	"operation": "CREATE", "namespace": "default", "userInfo": {"username": "alice"},
	"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web"}]}}}}`

const jsonType = "application/json"

// input is a request and the expected response.
type input struct {
	method, path, contentType, body string
	code                            int
	answer                          string // a part of the response body
}

func inputs() map[string]input {
	const mutate = "/pods/mutate"
	return map[string]input{
		"GET":                    {http.MethodGet, mutate, "", "", 405, "method GET is not allowed, reviews are sent by POST"},
		"PUT":                    {http.MethodPut, mutate, jsonType, review, 405, "method PUT is not allowed"},
		"no content type":        {http.MethodPost, mutate, "", review, 415, `content type "" is not supported, want application/json`},
		"YAML":                   {http.MethodPost, mutate, "application/yaml", review, 415, `content type "application/yaml" is not supported`},
		"JSON by its suffix":     {http.MethodPost, mutate, "application/merge-patch+json", review, 415, "is not supported"},
		"charset":                {http.MethodPost, mutate, jsonType + "; charset=utf-8", review, 200, `"allowed":true`},
		"too large":              {http.MethodPost, mutate, jsonType, strings.Repeat(" ", router.MaxBodyBytes) + review, 413, "larger than the 26214400 bytes"},
		"almost too large":       {http.MethodPost, mutate, jsonType, strings.Repeat(" ", router.MaxBodyBytes-len(review)) + review, 200, `"allowed":true`},
		"garbage":                {http.MethodPost, mutate, jsonType, "\x00\xff garbage", 400, "the body is not an AdmissionReview"},
		"half a review":          {http.MethodPost, mutate, jsonType, review[:len(review)/2], 200, "the body is not an AdmissionReview"},
		"an array":               {http.MethodPost, mutate, jsonType, "[" + review + "]", 400, "the body is not an AdmissionReview"},
		"deep":                   {http.MethodPost, mutate, jsonType, strings.Repeat("[", 1<<20), 400, "the body is not an AdmissionReview"},
		"wrong type of a field":  {http.MethodPost, mutate, jsonType, strings.Replace(review, `"CREATE"`, `{"a": 1}`, 1), 200, "the body is not an AdmissionReview"},
		"empty":                  {http.MethodPost, mutate, jsonType, "", 400, "the body is empty, want an AdmissionReview"},
		"null":                   {http.MethodPost, mutate, jsonType, "null", 400, `the body is kind "" of version ""`},
		"no request":             {http.MethodPost, mutate, jsonType, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`, 400, "the AdmissionReview has no request"},
		"wrong kind":             {http.MethodPost, mutate, jsonType, strings.Replace(review, "AdmissionReview", "TokenReview", 1), 400, `the body is kind "TokenReview"`},
		"v1beta1":                {http.MethodPost, mutate, jsonType, strings.Replace(review, "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1), 400, `of version "admission.k8s.io/v1beta1", want "AdmissionReview" of "admission.k8s.io/v1"`},
		"fields in other case":   {http.MethodPost, mutate, jsonType, strings.Replace(review, `"request"`, `"Request"`, 1), 400, "the AdmissionReview has no request"},
		"unknown path":           {http.MethodPost, "/nothing/mutate", jsonType, review, 404, "no admission service"},
		"root":                   {http.MethodPost, "/", jsonType, review, 404, "no admission service"},
		"path that is not clean": {http.MethodPost, "//pods/mutate", jsonType, review, 404, "no admission service"},
		"path that goes on":      {http.MethodPost, mutate + "/", jsonType, review, 404, "no admission service"},
		"time-out is no time":    {http.MethodPost, mutate + "?timeout=soon", jsonType, review, 400, `timeout "soon" is not a positive duration`},
		"time-out is negative":   {http.MethodPost, mutate + "?timeout=-1s", jsonType, review, 400, `timeout "-1s" is not a positive duration`},
		"time-out is zero":       {http.MethodPost, mutate + "?timeout=0s", jsonType, review, 400, `timeout "0s" is not a positive duration`},
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	c := suite.Lend(t)
	p := c.StartPostern(t, alwaysPull("--disable-http2-serving=false"))
	for protocol, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		client := clientOf(t, c, http2)
		for name, in := range inputs() {
			in.path = registeredSegment(t, c) + in.path
			t.Run(protocol+"/"+name, func(t *testing.T) {
				code, major, answer := send(t, client, p, in)
				if code != in.code || !strings.Contains(answer, in.answer) {
					t.Errorf("The answer is %d %q, want %d and %q in it", code, answer, in.code, in.answer)
				}
				if want := map[bool]int{false: 1, true: 2}[http2]; major != want {
					t.Errorf("It came by HTTP/%d, want HTTP/%d", major, want)
				}
				if code != http.StatusOK && strings.Count(answer, "\n") != 1 {
					t.Errorf("The answer is not one line: %q", answer)
				}
			})
		}
	}
	t.Run("a path that can be guessed", func(t *testing.T) {
		code, _, answer := send(t, clientOf(t, c, false), p, input{method: http.MethodPost, path: "/pods/mutate", contentType: jsonType, body: review})
		if code != http.StatusNotFound {
			t.Errorf("The answer is %d %q, want 404", code, answer)
		}
	})
	t.Run("a flood of garbage", func(t *testing.T) { flood(t, c, p) })
	if err := p.Ready(t.Context()); err != nil {
		t.Errorf("After all this: %v", err)
	}
	good(t, c, p)
}

// registeredSegment returns the path segment that precedes the paths of the registered webhooks.
func registeredSegment(t *testing.T, c *e2e.Cluster) string {
	t.Helper()
	var config struct {
		Webhooks []struct{ ClientConfig struct{ URL string } }
	}
	for _, u := range configsOf(t, c).get() {
		decode(t, u, &config)
	}
	registered, err := url.Parse(config.Webhooks[0].ClientConfig.URL)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(registered.Path[1:], "/")
	return "/" + first
}

// clientOf returns a client that trusts only the published CA bundle.
func clientOf(t *testing.T, c *e2e.Cluster, http2 bool) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	for _, u := range configsOf(t, c).get() {
		roots.AppendCertsFromPEM(caBundle(t, u))
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// send sends a request and returns the code, the protocol version and the body of the response.
func send(t *testing.T, client *http.Client, p *e2e.Postern, in input) (code, major int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), in.method, p.URL()+in.path, strings.NewReader(in.body))
	if err != nil {
		t.Fatal(err)
	}
	if in.contentType != "" {
		req.Header.Set("Content-Type", in.contentType)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("Sending it: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("Reading the answer: %v", err)
	}
	return resp.StatusCode, resp.ProtoMajor, string(body)
}

// flood sends 10,000 requests with small bodies over four connections.
func flood(t *testing.T, c *e2e.Cluster, p *e2e.Postern) {
	t.Helper()
	var senders sync.WaitGroup
	target := p.URL() + registeredSegment(t, c) + "/pods/validate"
	for range 4 {
		client := clientOf(t, c, false)
		senders.Go(func() {
			for i := range 2500 {
				resp, err := client.Post(target, jsonType, strings.NewReader(fmt.Sprintf("{%d", i)))
				if err != nil {
					t.Errorf("Sending garbage: %v", err)
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusBadRequest {
					t.Errorf("The answer to garbage is %s, %v; want 400", resp.Status, err)
					return
				}
			}
		})
	}
	senders.Wait()
}

// good sends a valid review.
func good(t *testing.T, c *e2e.Cluster, p *e2e.Postern) {
	t.Helper()
	code, _, answer := send(t, clientOf(t, c, true), p, input{method: http.MethodPost, path: registeredSegment(t, c) + "/pods/mutate?timeout=10s", contentType: jsonType, body: review})
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(answer), &got); err != nil || code != http.StatusOK || got.Response == nil {
		t.Fatalf("The answer to a review is %d %q, %v", code, answer, err)
	}
	if got.Kind != "AdmissionReview" || got.APIVersion != "admission.k8s.io/v1" || got.Response.UID != "11111111-2222-3333-4444-555555555555" {
		t.Errorf("The envelope of the answer is wrong: %s", answer)
	}
	if !got.Response.Allowed || !bytes.Contains(got.Response.Patch, []byte(`"Always"`)) {
		t.Errorf("The answer is %s, with the patch %s", answer, got.Response.Patch)
	}
}
