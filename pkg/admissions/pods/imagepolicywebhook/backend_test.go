package imagepolicywebhook_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"

	"github.com/postern-dev/postern/pkg/admit"
)

// long is longer than any test that passes.
const long = 30 * time.Second

// denial returns the message of a denial. Another result fails the test.
func denial(t *testing.T, err error) string {
	t.Helper()
	if !admit.IsDenial(err) {
		t.Fatalf("Got %v, want a denial", err)
	}
	return err.Error()
}

func admitted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("Got %v, want the pod admitted", err)
	}
}

func contains(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("Got %q, want %q in it", text, want)
	}
}

// undecided requires an error that is not a denial.
func undecided(t *testing.T, err error) {
	t.Helper()
	if admit.IsDenial(err) || err == nil {
		t.Fatalf("Got %v, want an error that is no denial", err)
	}
}

// TestClientCertificate checks both ends of the connection.
func TestClientCertificate(t *testing.T) {
	var names sync.Map
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		names.Store(r.TLS.PeerCertificates[0].Subject.CommonName, true)
		fmt.Fprint(w, yes)
	})
	admitted(t, s.plugin(t, "")(within(t, long), podWith("a")))
	if _, ok := names.Load("postern"); !ok {
		t.Error("The backend did not see the certificate of the plugin")
	}

	// Other names, because client-go shares connections between clients with the same files.
	stranger := newAuthority(t)
	stranger.publish(t, s.dir, "other-ca")
	write(t, s.kubeconfig(), strings.ReplaceAll(kubeconfigFor(s.URL), "ca.crt", "other-ca.crt"))
	contains(t, denial(t, s.plugin(t, "")(within(t, long), podWith("a"))), "x509: certificate signed by unknown authority")

	stranger.write(t, s.dir, "stranger", "postern")
	write(t, s.kubeconfig(), strings.ReplaceAll(kubeconfigFor(s.URL), "client.", "stranger."))
	contains(t, denial(t, s.plugin(t, "")(within(t, long), podWith("a"))), "tls: ")
}

// TestRotatedClientCertificate replaces the files of the certificate while the plugin runs.
func TestRotatedClientCertificate(t *testing.T) {
	var last atomic.Value
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.TLS.PeerCertificates[0].Subject.CommonName)
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, yes)
	})
	validate := s.plugin(t, "allowTTL: -1")
	admitted(t, validate(within(t, long), podWith("a")))
	s.authority.write(t, s.dir, "client", "renewed")
	for start := time.Now(); last.Load() != "renewed"; time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > long {
			t.Fatal("The new certificate is not used")
		}
		s.CloseClientConnections()
		admitted(t, validate(within(t, long), podWith("a")))
	}
}

// TestBackendThatHangs requires a decision before the deadline of the request.
func TestBackendThatHangs(t *testing.T) {
	for name, serve := range map[string]func(*testing.T, http.HandlerFunc) *server{"HTTP/1.1": serve, "HTTP/2": serveHTTP2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decidesInTime(t, serve(t, func(_ http.ResponseWriter, r *http.Request) { hang(r) }))
		})
	}
}

// hangTime is the time of a request to a backend that hangs. Three tenths remain for the decision without the backend,
// which a busy machine may delay.
const hangTime = 4 * time.Second

func decidesInTime(t *testing.T, s *server) {
	t.Helper()
	ctx := within(t, hangTime)
	contains(t, denial(t, s.registered(t, "", hangTime)(ctx, podWith("a"))), "context deadline exceeded")
	if ctx.Err() != nil {
		t.Error("The plugin decided after the deadline of the request")
	}

	ctx = within(t, hangTime)
	admitted(t, s.registered(t, "defaultAllow: true", hangTime)(ctx, podWith("a")))
	if ctx.Err() != nil {
		t.Error("The plugin decided after the deadline of the request")
	}
}

// TestFailuresAreCounted uses the metric, because a pod that was admitted without a review is otherwise only in the audit
// log.
func TestFailuresAreCounted(t *testing.T) {
	s := serve(t, answer("no review"))
	for _, fields := range []string{"", "defaultAllow: true"} {
		registry := metrics.NewKubeRegistry()
		h, err := newPlugin(t, registry, s.kubeconfig(), fields, long)
		if err != nil {
			t.Fatal(err)
		}
		err = h.Validate(within(t, long), podWith("a"))
		got, gatherErr := registry.Gather()
		if gatherErr != nil || len(got) != 1 {
			t.Fatalf("Got %v, %v, want one metric", got, gatherErr)
		}
		m := got[0].GetMetric()[0]
		if label := m.GetLabel()[0].GetValue(); m.GetCounter().GetValue() != 1 || label != strconv.FormatBool(err == nil) {
			t.Errorf("%q: got %v and the error %v, want one failure", fields, m, err)
		}
	}
}

// TestBackendThatHangsInItsAnswer sends the head of an answer only.
func TestBackendThatHangsInItsAnswer(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, yes[:len(yes)-1])
		_ = http.NewResponseController(w).Flush()
		hang(r)
	})
	denial(t, s.plugin(t, "")(within(t, time.Second), podWith("a")))
}

// TestCanceledRequest checks that the end of our own request is not taken for a failure of the backend.
func TestCanceledRequest(t *testing.T) {
	came, gone := make(chan struct{}), make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(came)
		hang(r)
		close(gone)
	})
	validate := s.plugin(t, "defaultAllow: true")
	ctx, cancel := context.WithCancel(within(t, long))
	go func() {
		<-came
		cancel()
	}()
	undecided(t, validate(ctx, podWith("a")))
	select {
	case <-gone:
	case <-time.After(long):
		t.Error("The call of the backend goes on, although no request waits for it")
	}
}

// TestBackendThatDropsConnections resets connections, or closes them without an answer, before it answers.
func TestBackendThatDropsConnections(t *testing.T) {
	for name, reset := range map[string]bool{"reset": true, "closed": false} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) > 3 {
					fmt.Fprint(w, yes)
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				if raw, ok := conn.(interface{ NetConn() net.Conn }); ok && reset {
					_ = raw.NetConn().(*net.TCPConn).SetLinger(0)
					_ = raw.NetConn().Close()
				}
				_ = conn.Close()
			})
			admitted(t, s.plugin(t, "")(within(t, long), podWith("a")))
			if got := calls.Load(); got != 4 {
				t.Errorf("Got %d calls, want 4", got)
			}
		})
	}
}

// TestRetryAfterBeyondTheDeadline does not wait for what cannot come.
func TestRetryAfterBeyondTheDeadline(t *testing.T) {
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	start := time.Now()
	contains(t, denial(t, s.plugin(t, "")(within(t, long), podWith("a"))), "try again later")
	if took := time.Since(start); took > long/2 || calls.Load() != 1 {
		t.Errorf("Got %d calls in %v, want one at once", calls.Load(), took)
	}
}

// TestBackendThatComesBack stops the backend and starts it again at its address.
func TestBackendThatComesBack(t *testing.T) {
	s := serve(t, answer(yes))
	validate := s.plugin(t, "allowTTL: -1")
	admitted(t, validate(within(t, long), podWith("a")))
	address, config := s.Listener.Addr().String(), s.TLS
	s.Close()
	contains(t, denial(t, validate(within(t, long), podWith("a"))), "connection refused")
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := &httptest.Server{Listener: listener, TLS: config, Config: &http.Server{Handler: answer(yes)}}
	again.StartTLS()
	defer again.Close()
	admitted(t, validate(within(t, long), podWith("a")))
}

// TestSharedCall sends many requests for one review to a slow backend. One of them is canceled.
func TestSharedCall(t *testing.T) {
	const requests = 100
	var calls atomic.Int32
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		<-release
		fmt.Fprint(w, no)
	})
	// A request that arrives after the call finds the verdict in the cache.
	validate := s.plugin(t, "")
	first, cancel := context.WithCancel(within(t, long))
	results := make(chan error, requests)
	go func() { results <- validate(first, podWith("a")) }()
	for calls.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range requests - 1 {
		go func() { results <- validate(within(t, long), podWith("a")) }()
	}
	time.Sleep(200 * time.Millisecond)
	cancel()
	undecided(t, <-results)
	close(release)
	for range requests - 1 {
		contains(t, denial(t, <-results), "no")
	}
	if got := calls.Load(); got != 1 {
		t.Errorf("Got %d calls of the backend, want 1", got)
	}
}

// TestAnotherDeadline joins the review of a request that ends before it. The review has a time of its own.
func TestAnotherDeadline(t *testing.T) {
	var calls atomic.Int32
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		<-release
		fmt.Fprint(w, yes)
	})
	validate := s.plugin(t, "")
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- validate(within(t, 3*time.Second), podWith("a")) }()
	for calls.Load() == 0 && len(first) == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() { second <- validate(within(t, long), podWith("a")) }()
	denial(t, <-first)
	close(release)
	admitted(t, <-second)
	if got := calls.Load(); got != 1 {
		t.Errorf("Got %d calls of the backend, want 1", got)
	}
}

// TestWaitingRequestsAreBounded fills the bound with requests for a backend that hangs. More requests are denied,
// whatever defaultAllow is, and cached verdicts are still used.
func TestWaitingRequestsAreBounded(t *testing.T) {
	const bound = 200
	var hanging atomic.Int32
	release := make(chan struct{})
	var hangs atomic.Bool
	s := serveHTTP2(t, func(w http.ResponseWriter, _ *http.Request) {
		if hangs.Load() {
			hanging.Add(1)
			<-release
		}
		fmt.Fprint(w, yes)
	})
	validate := s.plugin(t, "defaultAllow: true")
	admitted(t, validate(within(t, long), podWith("cached")))
	hangs.Store(true)
	results := make(chan error, bound)
	for i := range bound {
		go func() { results <- validate(within(t, long), podWith(fmt.Sprint(i))) }()
	}
	for hanging.Load() < bound {
		time.Sleep(time.Millisecond)
	}
	err := validate(within(t, long), podWith("one more"))
	contains(t, denial(t, err), "200 requests wait for the image policy backend already")
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != 1 {
		t.Errorf("Got %v, want code 429 and a Retry-After of 1 s", err)
	}
	admitted(t, validate(within(t, long), podWith("cached")))
	close(release)
	for range bound {
		admitted(t, <-results)
	}
	admitted(t, validate(within(t, long), podWith("one more")))
}

// TestSizeOfAnswers allows answers that repeat the review, and no others of that size.
func TestSizeOfAnswers(t *testing.T) {
	images := make([]string, 20000)
	for i := range images {
		images[i] = fmt.Sprintf("registry.example.com/team/image:%d", i)
	}
	repeats := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"status": {"allowed": true}, "spec": {"containers": [`)
		for i, image := range images {
			fmt.Fprintf(w, "%s\n      {\n        \"image\": %q\n      }", strings.Repeat(",", min(i, 1)), image)
		}
		fmt.Fprint(w, `]}}`)
	})
	admitted(t, repeats.plugin(t, "")(within(t, long), podWith(images...)))

	endless := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"status": {"allowed": true, "reason": "`)
		for r.Context().Err() == nil {
			if _, err := fmt.Fprint(w, strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	})
	contains(t, denial(t, endless.plugin(t, "")(within(t, long), podWith("a"))), "the answer is too large")
}

// TestLargeVerdictsAreNotCached keeps the cache small, whatever the backend repeats.
func TestLargeVerdictsAreNotCached(t *testing.T) {
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		fmt.Fprintf(w, `{"status": {"allowed": true, "auditAnnotations": {"a": %q}}}`, strings.Repeat("x", 20<<10))
	})
	validate := s.plugin(t, "")
	for range 2 {
		admitted(t, validate(within(t, long), podWith("a")))
	}
	if got := calls.Load(); got != 2 {
		t.Errorf("Got %d calls, want 2", got)
	}
}

// TestRedirects follows no redirect. kube-apiserver does, and sends the review and the credentials to the other server.
func TestRedirects(t *testing.T) {
	other := serve(t, answer(yes))
	var target string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/review" {
			http.Redirect(w, r, target, http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, yes)
	})
	validate := s.plugin(t, "allowTTL: -1")
	for _, target = range []string{other.URL, strings.Replace(s.URL, "https", "http", 1), "/review/"} {
		contains(t, denial(t, validate(within(t, long), podWith("a"))), "the server responded with the status code 307")
	}
}

// TestPlainHTTP works as in kube-apiserver, and sends no credentials.
func TestPlainHTTP(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("Got the credentials %q, want none", got)
		}
		fmt.Fprint(w, yes)
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, `{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: x, cluster: {server: "`+s.URL+`"}}],
		users: [{name: x, user: {token: secret}}], contexts: [{name: x, context: {cluster: x, user: x}}]}`)
	h, err := newPlugin(t, nil, file, "", long)
	if err != nil {
		t.Fatal(err)
	}
	admitted(t, h.Validate(within(t, long), podWith("a")))
}

// TestKubeconfigMistakes requires an error with the field and the file, without the secrets of the file.
func TestKubeconfigMistakes(t *testing.T) {
	s := serve(t, answer(yes))
	newAuthority(t).write(t, s.dir, "other", "other")
	good := kubeconfigFor(s.URL)
	for name, tc := range map[string]struct{ content, want string }{
		"empty":              {"", "no configuration has been provided"},
		"no YAML":            {"{token: secret", "kubeconfig"},
		"another kind":       {"{apiVersion: v1, kind: Pod}", "kubeconfig"},
		"no context":         {strings.Replace(good, "current-context: backend", "current-context: gone", 1), "context was not found for specified context: gone"},
		"no CA":              {strings.Replace(good, "ca.crt", "gone.crt", 1), "gone.crt"},
		"no certificate":     {strings.Replace(good, "client.crt", "gone.crt", 1), "gone.crt"},
		"no key":             {strings.Replace(good, "client.key", "gone.key", 1), "gone.key"},
		"another key":        {strings.Replace(good, "client.key", "other.key", 1), "other.key: tls: private key does not match public key"},
		"a CA that is none":  {strings.Replace(good, "ca.crt", "client.key", 1), "there is no certificate in "},
		"no address":         {strings.Replace(good, s.URL, "", 1), "no server found"},
		"a broken address":   {strings.Replace(good, s.URL, "https://[", 1), "host"},
		"a secret in base64": {strings.Replace(good, "client-key: client.key", "client-key-data: secret!", 1), "illegal base64"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, s.kubeconfig(), tc.content)
			_, err := newPlugin(t, nil, s.kubeconfig(), "", long)
			if err == nil {
				t.Fatal("The plugin started")
			}
			contains(t, err.Error(), "imagePolicy.kubeConfigFile: "+s.kubeconfig()+": ")
			contains(t, err.Error(), tc.want)
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("The error has a secret: %v", err)
			}
		})
	}
}

// TestTheOldestVerdictIsForgotten reviews one image more than the cache holds.
func TestTheOldestVerdictIsForgotten(t *testing.T) {
	const size = 1024
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		fmt.Fprint(w, yes)
	})
	validate := s.plugin(t, "")
	for i := range size + 1 {
		admitted(t, validate(within(t, long), podWith(strconv.Itoa(i))))
	}
	for _, image := range []string{"1", strconv.Itoa(size)} {
		if admitted(t, validate(within(t, long), podWith(image))); calls.Load() != size+1 {
			t.Errorf("%s: got %d calls, want the cached verdict", image, calls.Load())
		}
	}
	if admitted(t, validate(within(t, long), podWith("0"))); calls.Load() != size+2 {
		t.Errorf("Got %d calls, want another one for the first image", calls.Load())
	}
}
