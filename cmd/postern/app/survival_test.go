package app_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/pkg/router"
)

// memoryGroup creates a cgroup with a memory limit, and returns its folder.
func memoryGroup(t *testing.T, limit int64) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skipf("NOT tested: there are no cgroups here: %v", err)
	}
	var dir, file string
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case parts[1] == "memory":
			dir, file = filepath.Join("/sys/fs/cgroup/memory", parts[2]), "memory.limit_in_bytes"
		case parts[1] == "" && dir == "":
			dir, file = filepath.Join("/sys/fs/cgroup", parts[2]), "memory.max"
		}
	}
	dir = filepath.Join(dir, fmt.Sprint("postern-test-", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("NOT tested: it takes the right to make a cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, file), []byte(fmt.Sprint(limit)), 0o600); err != nil {
		t.Skipf("NOT tested: it takes the right to limit memory: %v", err)
	}
	return dir
}

// limited is a Postern process in its own cgroup.
type limited struct {
	group, url, health string
	// address is that of the secure port.
	address string
	// mutate and validate are the registered URLs.
	mutate, validate string
	client           *http.Client
	stderr           bytes.Buffer
	ended            chan error
}

// startLimited starts a process that may use so much memory, in bytes, and so many file descriptors.
func startLimited(t *testing.T, limit int64, descriptors int) *limited {
	t.Helper()
	p := &limited{group: memoryGroup(t, limit), ended: make(chan error, 1)}
	bin := filepath.Join(t.TempDir(), "postern")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "..").CombinedOutput(); err != nil {
		t.Fatalf("Building: %v\n%s", err, out)
	}
	server := &apiServer{pod: emptyTerms(t, 680_000), stored: map[string][]string{
		"/api/v1/limitranges": {
			`{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"limits","namespace":"ns","resourceVersion":"1"},
			"spec":{"limits":[{"type":"Container","default":{"cpu":"1"},"defaultRequest":{"cpu":"1"}}]}}`,
			`{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"limits","namespace":"tolerant","resourceVersion":"1"}}`,
			`{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"limits","namespace":"presets","resourceVersion":"1"}}`,
		},
		"/api/v1/namespaces": {`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns","resourceVersion":"1"}}`, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"presets","resourceVersion":"1"}}`, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"tolerant","resourceVersion":"1","annotations":{
			"scheduler.alpha.kubernetes.io/defaultTolerations":"[{}` + strings.Repeat(",{}", 255<<10/3) + `]"}}}`},
		"/apis/settings.postern.dev/v1alpha1/podpresets": presets(600, 120),
	}}
	api := httptest.NewServer(server)
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	port, dir := freePort(t), t.TempDir()
	p.address, p.health = "127.0.0.1:"+port, "127.0.0.1:"+freePort(t)
	p.url = "https://" + p.address
	// The shell enters the group, limits the file descriptors and executes the binary.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `echo $$ > "$0/cgroup.procs" && ulimit -n "$1" && shift && exec "$@"`, p.group, fmt.Sprint(descriptors), bin,
		"--enable-admission-plugins=AlwaysPullImages,DenyExecOnPrivileged,LimitRanger,PodPreset,PodTolerationRestriction", "--kubeconfig="+kubeconfig(t, api.URL), "--bind-address=127.0.0.1", "--secure-port="+port,
		"--health-bind-address="+p.health, "--webhook-url="+p.url, "--cert-dir="+dir, "--shutdown-delay-duration=0s")
	cmd.Stderr = &p.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
	})
	eventually(t, "the CA is there", func() bool { _, err := os.Stat(filepath.Join(dir, "ca.crt")); return err == nil })
	p.client = clientOf(t, dir)
	p.client.Transport.(*http.Transport).DisableKeepAlives = false
	p.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	eventually(t, "it is ready", func() bool { code, _ := status(p.client, p.url+"/readyz"); return code == http.StatusOK })
	eventually(t, "it is registered", func() bool { p.mutate, p.validate = server.urls(); return p.mutate != "" && p.validate != "" })
	return p
}

// peak returns the maximum memory of the group.
func (p *limited) peak() int64 {
	for _, file := range []string{"memory.max_usage_in_bytes", "memory.peak"} {
		if data, err := os.ReadFile(filepath.Join(p.group, file)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}

// emptyTerms returns a pod with so many empty items, in protobuf. Each takes 2 bytes there, and 48 bytes in memory.
func emptyTerms(t *testing.T, n int) []byte {
	t.Helper()
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "terms", Namespace: "ns"}}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: make([]corev1.NodeSelectorTerm, n),
	}}}
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(pod, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// send sends a body on n connections at once, and repeats it on each connection while the answer says so. It returns the number
// of final answers by code. Code 0 means no answer.
func (p *limited) send(ctx context.Context, n, tries int, url, body string) map[int]int {
	var mu sync.Mutex
	var all sync.WaitGroup
	codes := map[int]int{}
	for range n {
		all.Go(func() {
			code := p.repeat(ctx, tries, url, body)
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	all.Wait()
	return codes
}

// repeat repeats a request after a denial with 429, like a client of an API server, and after an answer with Retry-After, like an
// API server.
func (p *limited) repeat(ctx context.Context, tries int, url, body string) (code int) {
	for range tries {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?timeout=30s", strings.NewReader(body))
		if err != nil {
			return 0
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := p.client.Do(req)
		if err != nil {
			return 0
		}
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch code = resp.StatusCode; {
		case bytes.Contains(answer, []byte(`"code":429`)):
			code = http.StatusTooManyRequests
		case bytes.Contains(answer, []byte(`"code":5`)):
			code = http.StatusServiceUnavailable
		case code == http.StatusOK || resp.Header.Get("Retry-After") == "":
			return code
		}
		time.Sleep(500 * time.Millisecond)
	}
	return code
}

// podReview returns a review of a new pod with the given spec.
func podReview(spec string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","namespace":"ns",
		"kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},"object":{"metadata":{"name":"p"},"spec":` + spec + `}}}`
}

// largePod returns a review of a pod with 2.9 MB of variables.
func largePod() string {
	var env strings.Builder
	for i := 0; env.Len() < 2_900_000; i++ {
		fmt.Fprintf(&env, `{"name":"VARIABLE_%d","value":"its value"},`, i)
	}
	return podReview(`{"containers":[{"name":"c","image":"i","env":[` + strings.TrimSuffix(env.String(), ",") + `]}]}`)
}

// presets returns PodPresets of the namespace presets, of which each adds as many variables to every pod. The cache has them all.
func presets(n, variables int) (out []string) {
	for i := range n {
		var env strings.Builder
		for k := range variables {
			fmt.Fprintf(&env, `,{"name":"V%d"}`, i*variables+k)
		}
		out = append(out, fmt.Sprintf(`{"apiVersion":"settings.postern.dev/v1alpha1","kind":"PodPreset","metadata":{"name":"p%d","namespace":"presets","resourceVersion":"1"},"spec":{"env":[%s]}}`, i, env.String()[1:]))
	}
	return out
}

func listOf(field, item string, n int) string {
	return `{"` + field + `":[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `]}`
}

// largestPeak is how much memory a process with the limit of the chart, 512 MiB, may use for what one source sends.
const largestPeak = 300 << 20

// TestSurvival sends objects that are small as text and large in memory to processes with 256 and 512 MiB and 1024 file
// descriptors, and attacks their connections. A third process has the connections of --max-connections-per-source, which hold
// unfinished requests. The processes must answer and survive.
func TestSurvival(t *testing.T) {
	ring.Second(t, "attacks on processes with little memory, for three minutes")
	t.Run("256 MiB", func(t *testing.T) { survive(t, 256<<20) })
	t.Run("512 MiB", func(t *testing.T) {
		if peak := survive(t, 512<<20); peak == 0 || peak > largestPeak {
			t.Errorf("The peak was %d bytes (0: unknown), want at most %d", peak, largestPeak)
		}
	})
	t.Run("unfinished", func(t *testing.T) {
		p := startLimited(t, 512<<20, 4096)
		small, long := podReview(`{"containers":[{"name":"c","image":"i"}]}`), p.unfinishedHeader(func(int) string { return "a:" })
		for _, c := range []struct {
			name string
			send func(net.Conn) error
		}{
			{"a handshake", unfinishedHandshake(t)},
			{"a header of short lines", p.unfinishedHeader(func(i int) string { return fmt.Sprintf("%03s:\n", strconv.FormatInt(int64(i), 36)) })},
			{"a header of 95 lines", p.unfinishedHeader(func(int) string { return strings.Repeat("a", 330) + ":\n" })},
			{"a header of one line", long},
		} {
			t.Log(c.name)
			for sources := 1; sources <= 2; sources++ {
				unfinished(t, p, sources, c.send, small)
			}
			if peak := p.peak(); peak == 0 || peak > largestPeak {
				t.Errorf("%s: the peak was %d bytes (0: unknown), want at most %d", c.name, peak, largestPeak)
			}
		}
		unfinished(t, p, 2, long, largePod())
	})
}

// survive attacks a process with a memory limit, and returns the most memory that it used, in bytes.
func survive(t *testing.T, limit int64) (peak int64) {
	t.Helper()
	p := startLimited(t, limit, 1024)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	ordinary := largePod()
	escapes := podReview(`{"containers":[{"name":"c","image":"i","args":["` + strings.Repeat(`\u003c`, 3<<19) + `"]}]}`)
	const connect = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CONNECT","namespace":"ns","name":"terms",
		"kind":{"version":"v1","kind":"PodExecOptions"},"resource":{"version":"v1","resource":"pods"},"subResource":"exec","object":{"kind":"PodExecOptions","apiVersion":"v1"}}}`
	for _, c := range []struct {
		name     string
		n, tries int
		body     string
	}{
		{"the largest body", 1, 1, podReview(listOf("containers", "{}", router.MaxBodyBytes/3-1000))},
		{"the largest bodies at once", 64, 1, podReview(listOf("containers", "{}", router.MaxBodyBytes/3-1000))},
		{"9 MiB of escapes at once", 40, 60, escapes},
		{"7 MiB of containers at once", 64, 1, podReview(listOf("containers", "{}", 2_400_000))},
		{"7 MiB of volumes at once", 64, 1, podReview(listOf("volumes", "{}", 2_400_000))},
		{"3.1 MB of tolerations at once", 64, 1, podReview(listOf("tolerations", "{}", 1_030_000))},
		{"what is just small enough at once", 64, 1, podReview(listOf("containers", "{}", 120_000))},
		{"pods of 2.9 MiB at once", 40, 60, ordinary},
		{"8,000 containers that get defaults", 40, 60, podReview(listOf("containers", `{"name":"c","image":"i"}`, 8_000))},
		{"small pods that get many tolerations", 64, 60, strings.ReplaceAll(podReview(`{"containers":[{"name":"c","image":"i"}]}`), `"ns"`, `"tolerant"`)},
		{"small pods that get 72,000 variables", 40, 60, strings.ReplaceAll(podReview(`{"containers":[{"name":"c","image":"i"}]}`), `"ns"`, `"presets"`)},
		{"exec in a pod of 33 MB at once", 64, 60, connect},
		{"one more pod", 1, 1, ordinary},
	} {
		start := time.Now()
		url := p.mutate
		if c.body == connect {
			url = p.validate
		}
		codes := p.send(ctx, c.n, c.tries, url, c.body)
		t.Logf("%-34s %v in %v; the most memory so far is %d bytes", c.name, codes, time.Since(start).Round(10*time.Millisecond), p.peak())
		if codes[http.StatusOK] == 0 || codes[http.StatusOK]+codes[http.StatusTooManyRequests]+codes[http.StatusServiceUnavailable] != c.n {
			t.Errorf("%s: got the codes %v, want 200, and 429 where there is no room, or 503 where there is no time", c.name, codes)
		}
		if c.tries != 1 && codes[http.StatusOK] != c.n {
			t.Errorf("%s: got the codes %v, want 200 for all of them", c.name, codes)
		}
		p.mustRun(t, c.name)
	}
	for name, attack := range map[string]func(context.Context, *testing.T, *limited){
		"late bodies": lateBodies, "idle connections": idleConnections,
		"slow readers": slowReaders, "envelopes of 7 MiB": largeEnvelopes,
	} {
		attack(ctx, t, p)
		t.Logf("%-34s the most memory so far is %d bytes", name, p.peak())
		p.mustRun(t, name)
		if codes := p.send(ctx, 4, 10, p.mutate, ordinary); codes[http.StatusOK] != 4 {
			t.Errorf("%s: got the codes %v afterwards, want 200", name, codes)
		}
	}
	return p.peak()
}

// mustRun fails the test if the process has ended.
func (p *limited) mustRun(t *testing.T, after string) {
	t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err
		t.Fatalf("%s: it ended: %v\n%s", after, err, p.stderr.String())
	default:
	}
}
