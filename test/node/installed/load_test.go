//go:build linux

package installed_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	loadClients = 4
	// loadPeriod is the time from one request of a client to the next.
	loadPeriod = 50 * time.Millisecond
	// loadTimeout is longer than the time-out of a webhook.
	loadTimeout = 15 * time.Second
)

// podJSON returns a pod that AlwaysPullImages mutates. The spec is JSON without braces, and ends with a comma.
func podJSON(spec string) string {
	return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "load-"}, "spec": {` + spec +
		`"containers": [{"name": "c", "image": "test/web:1", "imagePullPolicy": "IfNotPresent"}]}}`
}

// api sends requests to the API server as the administrator.
type api struct {
	client     *http.Client
	url, token string
}

func newAPI(t *testing.T, kubeconfig string) *api {
	t.Helper()
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	field := func(expression string) string {
		match := regexp.MustCompile(expression).FindSubmatch(text)
		if match == nil {
			t.Fatalf("The kubeconfig has no %s", expression)
		}
		return string(match[1])
	}
	ca, err := os.ReadFile(field(`certificate-authority: ([^}\s]+)`))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &api{
		client: &http.Client{
			Timeout:   loadTimeout,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
		},
		url: field(`server: "([^"]+)"`), token: field(`token: "(\w+)"`),
	}
}

// do returns the status code and the body, or an error if there was no answer.
func (a *api) do(ctx context.Context, method, path, body string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

// create creates a pod in a dry run. It returns why that failed, or an empty string, and whether the API server answered.
func (a *api) create(ctx context.Context) (problem string, answered bool) {
	code, body, err := a.do(ctx, http.MethodPost, "/api/v1/namespaces/default/pods?dryRun=All", podJSON(""))
	if err != nil {
		return err.Error(), false
	}
	switch {
	case code != http.StatusCreated:
		var status struct{ Message string }
		_ = json.Unmarshal(body, &status)
		return fmt.Sprintf("%d %s", code, status.Message), true
	case !bytes.Contains(body, []byte(`"imagePullPolicy":"Always"`)):
		return "the pod was not mutated", true
	}
	return "", true
}

// sender sends a request. It returns what is wrong with the answer, or an empty string, and whether the API server answered.
type sender func(ctx context.Context) (problem string, answered bool)

// load sends requests with several clients until it is stopped.
type load struct {
	send    sender
	cancel  context.CancelFunc
	clients sync.WaitGroup

	mu       sync.Mutex
	phase    string
	phases   []string            // in the order in which they were entered
	good     map[string]int      // requests whose answer is right, by phase
	problems map[string][]string // by phase
	away     map[string][]string // why the API server did not answer a request, by phase
	slowest  map[string]time.Duration
}

// startLoad starts a load in its first phase.
func startLoad(t *testing.T, phase string, send sender) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{send: send, cancel: cancel, good: map[string]int{}, problems: map[string][]string{}, away: map[string][]string{}, slowest: map[string]time.Duration{}}
	l.enter(phase)
	for range loadClients {
		l.clients.Go(func() {
			for ctx.Err() == nil {
				l.request(ctx)
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) request(ctx context.Context) {
	start := time.Now()
	l.mu.Lock()
	phase := l.phase
	l.mu.Unlock()
	problem, answered := l.send(ctx)
	took := time.Since(start)
	if answered || ctx.Err() == nil {
		l.mu.Lock()
		l.slowest[phase] = max(l.slowest[phase], took)
		switch {
		case problem == "":
			l.good[phase]++
		case answered:
			l.problems[phase] = append(l.problems[phase], start.Format("15:04:05.000 ")+problem)
		default:
			l.away[phase] = append(l.away[phase], problem)
		}
		l.mu.Unlock()
	}
	time.Sleep(max(0, loadPeriod-took))
}

// enter begins a phase: requests are counted in the phase in which they are sent.
func (l *load) enter(phase string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase, l.phases = phase, append(l.phases, phase)
}

func (l *load) stop() {
	l.cancel()
	l.clients.Wait()
}

// report logs the result of a phase and returns the problems. Every phase must have good answers.
func (l *load) report(t *testing.T, phase string) []string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	problems := l.problems[phase]
	t.Logf("%s: %d answered as they should, %d not, %d without an answer of the API server; the slowest took %s",
		phase, l.good[phase], len(problems), len(l.away[phase]), l.slowest[phase].Round(time.Millisecond))
	if l.good[phase] == 0 {
		t.Errorf("%s: no request was answered as it should", phase)
	}
	return problems
}

// none fails for each problem of a phase.
func (l *load) none(t *testing.T, phase string) {
	t.Helper()
	problems := l.report(t, phase)
	for i, problem := range problems {
		if i == 10 {
			t.Errorf("%s: and %d more", phase, len(problems)-i)
			break
		}
		t.Errorf("%s: %s", phase, problem)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if away := l.away[phase]; len(away) > 0 {
		t.Errorf("%s: the API server did not answer %d requests, the first one because of %s", phase, len(away), away[0])
	}
}

// reportAll stops the load, and fails for each problem of each phase.
func (l *load) reportAll(t *testing.T) {
	t.Helper()
	l.stop()
	for _, phase := range l.phases {
		l.none(t, phase)
	}
}
