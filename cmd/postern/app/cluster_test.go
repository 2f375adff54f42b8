package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
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

// apiServer answers each call with the next of its statuses, and all later calls with the last one.
type apiServer struct {
	statuses []int
	calls    int
}

func (s *apiServer) RoundTrip(req *http.Request) (*http.Response, error) {
	code := s.statuses[min(s.calls, len(s.statuses)-1)]
	s.calls++
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	switch code {
	case http.StatusUnauthorized:
		_, _ = w.WriteString(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
	case http.StatusForbidden:
		_, _ = w.WriteString(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"users \"jane\" is forbidden","reason":"Forbidden","code":403}`)
	case http.StatusOK:
		_, _ = w.WriteString(`{"gitVersion":"v1.37.1"}`)
	}
	res := w.Result()
	res.Request = req
	return res, nil
}

// TestRefusedCredentials has credentials that stay the same, with which the start ends after refusalPeriod, and the token of a file,
// as in a pod, with which it waits as long as it may.
func TestRefusedCredentials(t *testing.T) {
	const (
		ok, no, forbidden, down = http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable
		refused                 = "the API server refuses requests with the credentials of somebody: Unauthorized"
	)
	file := tokenFile(t)
	for name, c := range map[string]struct {
		config   rest.Config
		statuses []int
		timeout  time.Duration
		calls    int
		err      string
	}{
		"a token that is refused":       {config: rest.Config{BearerToken: "old"}, statuses: []int{no}, timeout: time.Minute, calls: 11, err: refused},
		"a token before the time-out":   {config: rest.Config{BearerToken: "old"}, statuses: []int{no}, timeout: 8 * time.Second, calls: 9, err: refused},
		"a token that is not known yet": {config: rest.Config{BearerToken: "new"}, statuses: []int{no, no, no, ok}, timeout: time.Minute, calls: 4},
		"a restart of the API server":   {config: rest.Config{BearerToken: "old"}, statuses: []int{no, no, no, no, no, no, down, no}, timeout: time.Minute, calls: 18, err: refused},
		"nothing":                       {statuses: []int{no}, timeout: time.Minute, calls: 11, err: refused},
		"the token of a file":           {config: rest.Config{BearerTokenFile: file}, statuses: []int{no, no, no, no, no, no, no, no, no, no, no, no, ok}, timeout: time.Minute, calls: 13},
		"the token of a file too late":  {config: rest.Config{BearerTokenFile: file}, statuses: []int{no}, timeout: 15 * time.Second, calls: 16, err: refused},
		"impersonation": {
			config: rest.Config{BearerToken: "a"}, statuses: []int{forbidden}, timeout: 15 * time.Second, calls: 16,
			err: `the API server forbids requests with the credentials of somebody: users "jane" is forbidden`,
		},
		"a role that comes later": {config: rest.Config{BearerToken: "a"}, statuses: []int{forbidden, forbidden, ok}, timeout: time.Minute, calls: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &apiServer{statuses: c.statuses}
				c.config.Host, c.config.Transport = "https://api.invalid", api
				cluster, err := newClients(&c.config)
				if err != nil {
					t.Fatal(err)
				}
				cluster.credentials = "with the credentials of somebody"
				err = cluster.reach(t.Context(), c.timeout)
				if (err == nil) != (c.err == "") || (err != nil && err.Error() != c.err) || api.calls != c.calls {
					t.Errorf("Got error %v after %d calls, want %q after %d", err, api.calls, c.err, c.calls)
				}
			})
		})
	}
}

// TestCredentialsAreNamed covers kubeconfigs without credentials, and one whose server is not called over TLS: client-go sends no
// credentials to it.
func TestCredentialsAreNamed(t *testing.T) {
	for name, c := range map[string]struct{ server, user, users, want string }{
		"a token":       {"https://127.0.0.1:1", "u", `{"name":"u","user":{"token":"a"}}`, "with the credentials of the user u in FILE"},
		"a certificate": {"https://127.0.0.1:1", "u", `{"name":"u","user":{"client-certificate-data":"YQ==","client-key-data":"YQ=="}}`, "with the credentials of the user u in FILE"},
		"a plugin":      {"https://127.0.0.1:1", "u", `{"name":"u","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"a","interactiveMode":"Never"}}}`, "with the credentials of the user u in FILE"},
		"no user":       {"https://127.0.0.1:1", "", ``, "without credentials, and the kubeconfig FILE has no credentials"},
		"an empty user": {"https://127.0.0.1:1", "u", `{"name":"u","user":{}}`, "without credentials, and the kubeconfig FILE has no credentials"},
		"a server without TLS": {
			"http://127.0.0.1:1", "u", `{"name":"u","user":{"token":"a"}}`,
			"without credentials, and the kubeconfig FILE has no credentials for a server without https",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
				"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":%q}}],"users":[%s]}`, c.server, c.user, c.users), 0o600); err != nil {
				t.Fatal(err)
			}
			config, err := restConfig(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(whose(config, path), path, "FILE"); got != c.want {
				t.Errorf("Got %q, want %q", got, c.want)
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
