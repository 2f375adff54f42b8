package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/internal/reads"
)

// tally is an account without a limit.
type tally struct {
	reads.Detached
	held int64
}

func (a *tally) Hold(_ context.Context, n int64) error { a.held += n; return nil }

// TestClientsHoldWhatTheyRead covers both clients, so that what plugins read is part of the memory of their request.
func TestClientsHoldWhatTheyRead(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`))
	}))
	t.Cleanup(api.Close)
	c, err := newClients(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	for name, get := range map[string]func(context.Context) error{
		"typed": func(ctx context.Context) error {
			_, err := c.client.CoreV1().Pods("shop").Get(ctx, "a", metav1.GetOptions{})
			return err
		},
		"dynamic": func(ctx context.Context) error {
			_, err := c.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("shop").Get(ctx, "a", metav1.GetOptions{})
			return err
		},
	} {
		a := &tally{}
		if err := get(reads.NewContext(t.Context(), a)); err != nil || a.held == 0 {
			t.Errorf("%s: %d bytes were held; the error is %v", name, a.held, err)
		}
	}
}

// TestCertificatesHaveTheTimeOfTheAPIServer covers a process whose clock is two days behind. Without a Secret, the certificate
// is one that nobody trusts, with the times of any other.
func TestCertificatesHaveTheTimeOfTheAPIServer(t *testing.T) {
	const ahead = 48 * time.Hour
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		if req.URL.Path != "/version" {
			http.NotFound(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"gitVersion":"v1.37.1"}`))
	}))
	t.Cleanup(api.Close)
	c, err := newClients(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.reach(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	o := &options{webhookNamespace: "postern-system"}
	o.certificates = certificateFlags{caValidity: 24 * time.Hour, servingValidity: time.Hour}
	p := o.newProcess(c)
	p.deployment.Service, p.deployment.Namespace = "postern", o.webhookNamespace
	source, err := p.authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if off := source.NotAfter().Sub(time.Now().Add(ahead + time.Hour)); off.Abs() > time.Minute {
		t.Errorf("The certificate expires at %v, %v later than it should", source.NotAfter(), off)
	}
}

// TestClientsHaveNoLimitOfTheirOwn covers the limit of client-go, which one user could use up for all.
func TestClientsHaveNoLimitOfTheirOwn(t *testing.T) {
	config := &rest.Config{Host: "http://localhost"}
	c, err := newClients(config)
	if err != nil {
		t.Fatal(err)
	}
	if limiter := c.client.CoreV1().RESTClient().GetRateLimiter(); limiter != nil && limiter.QPS() > 0 {
		t.Errorf("The typed client has the limit %v", limiter.QPS())
	}
	// The dynamic client does not tell its limit.
	if config.QPS >= 0 {
		t.Errorf("The configuration of the clients has the limit %v", config.QPS)
	}
}

// TestRefusedCredentials has an API server that refuses the first three requests. Credentials that stay the same fail at the first
// one. A token in a file, as in a pod, may be accepted later.
func TestRefusedCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		config  rest.Config
		timeout time.Duration
		calls   int32
		err     string
	}{
		"a token":             {config: rest.Config{BearerToken: "old"}, timeout: time.Minute, calls: 1, err: "the API server refuses the credentials of somebody: "},
		"nothing":             {timeout: time.Minute, calls: 1, err: "the API server refuses the credentials of somebody: "},
		"the token of a file": {config: rest.Config{BearerTokenFile: tokenFile(t)}, timeout: time.Minute, calls: 4},
		"too late":            {config: rest.Config{BearerTokenFile: tokenFile(t)}, timeout: 1500 * time.Millisecond, calls: 2, err: "the API server refuses the credentials of somebody, also after 1.5s: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if calls.Add(1) <= 3 {
					w.WriteHeader(http.StatusUnauthorized)
					_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`))
					return
				}
				_, _ = w.Write([]byte(`{"gitVersion":"v1.37.1"}`))
			}))
			defer api.Close()
			c.config.Host = api.URL
			cluster, err := newClients(&c.config)
			if err != nil {
				t.Fatal(err)
			}
			cluster.credentials = "somebody"
			err = cluster.reach(t.Context(), c.timeout)
			if (err == nil) != (c.err == "") || (err != nil && !strings.HasPrefix(err.Error(), c.err)) || calls.Load() != c.calls {
				t.Errorf("Got error %v after %d calls, want %q after %d", err, calls.Load(), c.err, c.calls)
			}
		})
	}
}

func tokenFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
