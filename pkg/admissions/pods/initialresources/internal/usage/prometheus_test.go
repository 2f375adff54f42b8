package usage

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/internal/ring"
)

// series is a series of samples of cAdvisor, one each minute.
type series struct {
	namespace, pod, image string
	// days is the age of the first sample, and minutes is how long there are samples.
	days, minutes int
	// cpu is in cores, memory in bytes. The last fifth of the samples has ten times as much.
	cpu, memory float64
}

// TestRealPrometheus asks a Prometheus that has 30 days of data.
func TestRealPrometheus(t *testing.T) {
	ring.Second(t, "it starts a Prometheus")
	server := lookUp(t)
	url := serve(t, server, []series{
		{"shop", "web-1", "docker.io/library/nginx:1.25", 6, 600, 0.2, 100 << 20},
		{"shop", "web-2", "docker.io/library/nginx:1.25", 6, 600, 0.2, 100 << 20},
		{"office", "web-1", "docker.io/library/nginx:1.24", 25, 600, 0.4, 200 << 20},
		{"office", "exporter", "docker.io/library/nginx-exporter:1.25", 5, 600, 4, 4 << 30},
		{"shop", "tiny", "example.com:5000/tiny:v1", 5, 60, 0.00001, 1},
		{"shop", "idle", "example.com:5000/idle:v1", 5, 600, 0, 0},
		{"shop", "evil", "x", 5, 600, 8, 8 << 30},
	})
	source, err := NewPrometheus(PrometheusConfig{URL: url}, 50, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		value         int64
		least, atMost int64
	}
	for name, tc := range map[string]struct {
		image, namespace string
		any              bool
		window           time.Duration
		cpu, memory      result
	}{
		"the same version":                {"nginx:1.25", "shop", false, week, result{200, 220, 260}, result{100 << 20, 220, 260}},
		"in all namespaces":               {"nginx:1.25", "", false, week, result{200, 220, 260}, result{100 << 20, 220, 260}},
		"in another namespace":            {"nginx:1.25", "office", false, month, result{}, result{}},
		"too old for a week":              {"nginx:1.24", "office", false, week, result{}, result{}},
		"young enough for a month":        {"nginx:1.24", "office", false, month, result{400, 110, 130}, result{200 << 20, 110, 130}},
		"another version":                 {"nginx:1.24", "", true, month, result{200, 330, 390}, result{100 << 20, 330, 390}},
		"less than a thousandth":          {"example.com:5000/tiny:v1", "shop", false, week, result{1, 10, 14}, result{1, 10, 14}},
		"nothing at all":                  {"example.com:5000/idle:v1", "shop", false, week, result{}, result{}},
		"a namespace is no expression":    {"nginx:1.25", "sho.", false, week, result{}, result{}},
		"a namespace closes no string":    {"nginx:1.25", `x"}) or vector(1) or up{a="`, false, week, result{}, result{}},
		"an image that nobody has used":   {"registry.example.com/nginx:1.25", "", true, month, result{}, result{}},
		"a tag is no expression":          {"nginx:1_25", "", false, month, result{}, result{}},
		"a digest that nobody has used":   {"nginx@sha256:" + strings.Repeat("a", 64), "", false, month, result{}, result{}},
		"every version but not this name": {"nginx-exporte", "", true, month, result{}, result{}},
	} {
		t.Run(name, func(t *testing.T) {
			image, err := ParseImage(tc.image)
			if err != nil {
				t.Fatal(err)
			}
			if tc.any {
				image = image.anyVersion()
			}
			for resource, want := range map[corev1.ResourceName]result{corev1.ResourceCPU: tc.cpu, corev1.ResourceMemory: tc.memory} {
				got, err := source.Percentile(t.Context(), Query{resource, image, tc.namespace, tc.window})
				near := got.Value >= want.value*9/10 && got.Value <= want.value*11/10
				if err != nil || !near || got.Samples < want.least || got.Samples > want.atMost {
					t.Errorf("%s: got %+v and error %v, want about %+v", resource, got, err, want)
				}
			}
		})
	}
	t.Run("another percentile", func(t *testing.T) {
		high, err := NewPrometheus(PrometheusConfig{URL: url}, 95, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		image, err := ParseImage("nginx:1.25")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := high.Percentile(t.Context(), Query{corev1.ResourceMemory, image, "shop", week}); err != nil || got.Value != 1000<<20 {
			t.Errorf("Got %+v and error %v, want %d", got, err, 1000<<20)
		}
	})
	t.Run("a query that fails", func(t *testing.T) {
		broken, err := NewPrometheus(PrometheusConfig{URL: url, Queries: map[corev1.ResourceName]Queries{
			corev1.ResourceCPU: {Samples: `sum(up{a=~$image,b=~$namespace}[$window])`},
		}}, 50, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := broken.Percentile(t.Context(), Query{corev1.ResourceCPU, Image{name: "a"}, "", week}); err == nil || !strings.Contains(err.Error(), "bad_data") {
			t.Errorf("Got %+v and error %v, want the parser's error", got, err)
		}
	})
}

// lookUp returns the path of Prometheus. It skips the test if there is none.
func lookUp(t *testing.T) string {
	t.Helper()
	server, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("NOT TESTED with a real Prometheus: there is no program prometheus. Install the Debian package prometheus")
	}
	return server
}

// exporter has the metrics of cAdvisor. Each scrape gets the samples of the next minute of the last hour, until now.
type exporter struct {
	start    time.Time
	minutes  atomic.Int64
	all      []series
	finished chan struct{}
}

// ServeHTTP implements http.Handler.
func (e *exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	const last = 55
	minute := e.minutes.Add(1)
	if minute > last {
		if minute == last+1 {
			close(e.finished)
		}
		return
	}
	at := e.start.Add(time.Duration(minute) * time.Minute).UnixMilli()
	for _, metric := range []string{"container_cpu_usage_seconds_total", "container_memory_working_set_bytes"} {
		for _, s := range e.all {
			value := s.memory
			if metric == "container_cpu_usage_seconds_total" {
				value = s.cpu * 60 * float64(minute)
			}
			fmt.Fprintf(w, "%s{container=\"app\",namespace=%q,pod=%q,image=%q} %g %d\n", metric, s.namespace, s.pod, s.image, value, at)
		}
	}
}

// TestAScrapedExporter has a real Prometheus scrape an exporter, and estimates with what it has scraped.
func TestAScrapedExporter(t *testing.T) {
	ring.Second(t, "it starts a Prometheus")
	server := lookUp(t)
	const image = "registry.example.com:5000/shop/app:1.2"
	e := &exporter{start: time.Now().Add(-56 * time.Minute), finished: make(chan struct{})}
	for i := range 4 {
		e.all = append(e.all, series{namespace: "shop", pod: fmt.Sprint("app-", i), image: image, cpu: 0.25, memory: 300e6})
	}
	e.all = append(e.all,
		series{namespace: "shop", pod: "other-port", image: "registry.example.com:5001/shop/app:1.2", cpu: 8, memory: 8e9},
		series{namespace: "shop", pod: "other-version", image: "registry.example.com:5000/shop/app:1.3", cpu: 8, memory: 8e9})
	target := httptest.NewServer(e)
	defer target.Close()
	url := run(t, server, filepath.Join(t.TempDir(), "data"), "scrape_configs:\n- job_name: cadvisor\n  scrape_interval: 50ms\n  scrape_timeout: 50ms\n  static_configs: [{targets: [\""+target.Listener.Addr().String()+"\"]}]\n")
	select {
	case <-e.finished:
	case <-time.After(time.Minute):
		t.Fatalf("Prometheus has scraped %d times in a minute", e.minutes.Load())
	}
	source, err := NewPrometheus(PrometheusConfig{URL: url}, 90, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseImage(image)
	if err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[corev1.ResourceName]int64{corev1.ResourceCPU: 250, corev1.ResourceMemory: 300e6} {
		got, err := Estimate(t.Context(), source, Scopes(resource, parsed, "shop", false)[0])
		// The estimate is rounded up.
		if err != nil || got.Value < want || got.Value > want+1 || got.Samples < Enough || got.Samples > 4*12 {
			t.Errorf("%s: got %+v and error %v, want %d of %d to %d samples", resource, got, err, want, Enough, 4*12)
		}
	}
}

// serve starts a Prometheus with these series and returns its URL.
func serve(t *testing.T, server string, all []series) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	file := filepath.Join(dir, "samples.txt")
	if err := os.WriteFile(file, []byte(openMetrics(all)), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(server), "promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=720h", file, data)
	if out, err := promtool.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", promtool.Args, err, out)
	}
	return run(t, server, data, "global: {}\n")
}

// run starts a Prometheus with a folder of data and a configuration, and returns its URL.
func run(t *testing.T, server, data, configuration string) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(config, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, server, "--config.file="+config, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=40d", "--web.listen-address="+address)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	for range 300 {
		if resp, err := http.Get("http://" + address + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("Prometheus is not ready after 30 seconds")
	return ""
}

// openMetrics returns the samples in the format that promtool imports.
func openMetrics(all []series) string {
	var cpu, memory strings.Builder
	now := time.Now().Unix()
	for _, s := range all {
		labels := fmt.Sprintf("{container=\"app\",namespace=%q,pod=%q,image=%q}", s.namespace, s.pod, s.image)
		var total float64
		for i := range s.minutes {
			factor := 1.0
			if i >= s.minutes*4/5 {
				factor = 10
			}
			total += s.cpu * 60 * factor
			at := now - int64(s.days)*86400 + int64(i)*60
			fmt.Fprintf(&cpu, "container_cpu_usage_seconds_total%s %g %d\n", labels, total, at)
			fmt.Fprintf(&memory, "container_memory_working_set_bytes%s %g %d\n", labels, s.memory*factor, at)
		}
	}
	return "# TYPE container_cpu_usage_seconds counter\n" + cpu.String() + "# TYPE container_memory_working_set_bytes gauge\n" + memory.String() + "# EOF\n"
}

// TestNonsense has a server that answers the query for the usage with anything.
func TestNonsense(t *testing.T) {
	vector := func(values ...string) string {
		var items []string
		for _, v := range values {
			items = append(items, `{"metric":{},"value":[1,"`+v+`"]}`)
		}
		return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(items, ",") + `]}}`
	}
	for name, tc := range map[string]struct {
		usage  string
		want   Answer
		failed bool
	}{
		"a number":            {usage: vector("0.2501"), want: Answer{251, 40}},
		"a scalar":            {usage: `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`, want: Answer{2000, 40}},
		"nothing":             {usage: vector()},
		"not a number":        {usage: vector("NaN")},
		"infinity":            {usage: vector("+Inf")},
		"negative infinity":   {usage: vector("-Inf")},
		"negative":            {usage: vector("-1")},
		"zero":                {usage: vector("0")},
		"more than there is":  {usage: vector("1e300")},
		"several numbers":     {usage: vector("1", "2"), failed: true},
		"a text":              {usage: `{"status":"success","data":{"resultType":"string","result":[1,"2"]}}`, failed: true},
		"an error":            {usage: `{"status":"error","errorType":"execution","error":"too many samples"}`, failed: true},
		"no JSON":             {usage: `<html>`, failed: true},
		"another type":        {usage: `{"status":"success","data":{"resultType":"vector","result":{}}}`, failed: true},
		"a million series":    {usage: vector(slices.Repeat([]string{"1"}, 1e6)...), failed: true},
		"an endless document": {usage: strings.Repeat(" ", maxAnswer+1) + vector("1"), failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.FormValue("query"), "sum") {
					_, _ = w.Write([]byte(vector("40")))
					return
				}
				_, _ = w.Write([]byte(tc.usage))
			}))
			defer s.Close()
			source, err := NewPrometheus(PrometheusConfig{URL: s.URL + "/prefix/"}, 90, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			got, err := source.Percentile(t.Context(), Query{corev1.ResourceCPU, Image{name: "a"}, "", week})
			if got != tc.want || (err != nil) != tc.failed {
				t.Errorf("Got %+v and error %v, want %+v", got, err, tc.want)
			}
		})
	}
}

// TestNonsenseAboutSamples has a server that answers the query for the samples with any number.
func TestNonsenseAboutSamples(t *testing.T) {
	for samples, want := range map[string]int64{"NaN": 0, "+Inf": 0, "-Inf": 0, "-1": 0, "0": 0, "0.9": 0, "1e300": 0, "1.9": 1, "1e15": 1e15} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			value := "2"
			if strings.HasPrefix(r.FormValue("query"), "sum") {
				value = samples
			}
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"scalar","result":[1,%q]}}`, value)
		}))
		defer s.Close()
		source, err := NewPrometheus(PrometheusConfig{URL: s.URL}, 90, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		got, err := source.Percentile(t.Context(), Query{corev1.ResourceMemory, Image{name: "a"}, "", week})
		if err != nil || got.Samples != want || (got.Value != 0) != (want != 0) {
			t.Errorf("Got %+v and error %v for %s samples, want %d", got, err, samples, want)
		}
	}
}

// TestTheConnectionIsVerified has a server with TLS and a token, and another server to which it redirects.
func TestTheConnectionIsVerified(t *testing.T) {
	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	var redirect atomic.Bool
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case redirect.Load():
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		default:
			_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"40"]}}`))
		}
	}))
	defer s.Close()
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	write := func(name, content string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	ca := write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	token, wrong := write("token", "secret\n"), write("token", "wrong")
	for name, tc := range map[string]struct {
		config   PrometheusConfig
		redirect bool
		works    bool
	}{
		"all is well":        {config: PrometheusConfig{CAFile: ca, BearerTokenFile: token}, works: true},
		"another name":       {config: PrometheusConfig{CAFile: ca, BearerTokenFile: token, ServerName: "example.com"}, works: true},
		"a name of nobody":   {config: PrometheusConfig{CAFile: ca, BearerTokenFile: token, ServerName: "nobody"}},
		"an unknown CA":      {config: PrometheusConfig{BearerTokenFile: token}},
		"no token":           {config: PrometheusConfig{CAFile: ca}},
		"another token":      {config: PrometheusConfig{CAFile: ca, BearerTokenFile: wrong}},
		"to somewhere else":  {config: PrometheusConfig{CAFile: ca, BearerTokenFile: token}, redirect: true},
		"with another query": {config: PrometheusConfig{CAFile: ca, BearerTokenFile: token, Queries: map[corev1.ResourceName]Queries{"cpu": {Samples: "f($image,$namespace,$window)"}}}, works: true},
	} {
		t.Run(name, func(t *testing.T) {
			redirect.Store(tc.redirect)
			tc.config.URL = s.URL
			source, err := NewPrometheus(tc.config, 90, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			got, err := source.Percentile(t.Context(), Query{corev1.ResourceCPU, Image{name: "a"}, "", week})
			if (err == nil) != tc.works || tc.works && got.Samples != 40 {
				t.Errorf("Got %+v and error %v, want it to work: %t", got, err, tc.works)
			}
		})
	}
	if stolen.Load() != 0 {
		t.Error("The query was sent to another server")
	}
}

// TestDocumentedQueries compares the default queries with those in the README.
func TestDocumentedQueries(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(string(readme), "```") {
		text, ok := strings.CutPrefix(block, "yaml\n")
		if !ok || !strings.Contains(text, "queries:") {
			continue
		}
		var documented struct {
			Prometheus PrometheusConfig `json:"prometheus"`
		}
		if err := yaml.UnmarshalStrict([]byte(text), &documented); err != nil {
			t.Fatal(err)
		}
		for name, want := range defaultQueries() {
			got := documented.Prometheus.Queries[name]
			without := strings.NewReplacer(" ", "", "\n", "")
			if without.Replace(got.Usage) != without.Replace(want.Usage) || without.Replace(got.Samples) != without.Replace(want.Samples) {
				t.Errorf("%s: the README has %q, want %q", name, got, want)
			}
		}
		return
	}
	t.Error("The README has no queries")
}
