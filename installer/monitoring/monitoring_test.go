package monitoring

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// exported maps the name of each series to its labels, and each label to its values.
type exported map[string]map[string]map[string]bool

// scrapeLabels are the labels that Prometheus adds to every series.
var scrapeLabels = []string{"instance", "job"}

// rule is an alert of rules.yaml.
type rule struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	read(t, "rules.yaml", &file)
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("Got no rule")
	}
	return all
}

func read(t *testing.T, name string, into any) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("Reading %s: %v", name, err)
	}
	return data
}

// TestExpressions parses every expression of the rules and of the dashboard. Each series, each label and each value of a
// matcher must be one that the running process exports.
func TestExpressions(t *testing.T) {
	expressions := map[string]string{}
	for _, r := range rules(t) {
		expressions["alert "+r.Alert] = r.Expr
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ RefID, Expr, LegendFormat string }
		}
	}
	read(t, "dashboard.json", &dashboard)
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || len(p.Targets) == 0 {
			t.Errorf("Panel %q has no expression, or the id of another panel", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			// Grafana sets this variable.
			expressions["panel "+p.Title+" "+target.RefID] = strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
		}
	}
	series := run(t)
	used := map[string]bool{}
	for where, expression := range expressions {
		for _, mistake := range series.check(expression, used) {
			t.Errorf("%s: %s", where, mistake)
		}
	}
	// The dashboard shows everything of Postern itself.
	for name := range series {
		base := regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(name, "")
		if strings.HasPrefix(name, "postern_") && !used[name] && !used[base+"_bucket"] && !used[base+"_count"] {
			t.Errorf("No rule and no panel uses %s", name)
		}
	}
}

// TestCheckFindsMistakes makes sure that the check of an expression does not admit everything.
func TestCheckFindsMistakes(t *testing.T) {
	series := exported{"a_total": {"code": {"200": true}}}
	for expression, want := range map[string]string{
		`rate(a_total{code="200"}[5m])`:                "",
		`sum by (code) (a_total)`:                      "",
		`a_total{instance="x"}`:                        "",
		`sum by (cod) (a_total)`:                       "no series of the expression has the label cod",
		`a_total{cod="200"}`:                           "a_total has no label cod",
		`a_total{code="500"}`:                          "no a_total has code=\"500\"",
		`b_total`:                                      "b_total is not exported",
		`a_total / on (cod) a_total`:                   "no series of the expression has the label cod",
		`rate(a_total)`:                                "expected type range vector",
		`a_total / on (code) group_left (cod) a_total`: "no series of the expression has the label cod",
	} {
		got := strings.Join(series.check(expression, map[string]bool{}), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", expression, got, want)
		}
	}
}

// check returns the mistakes in an expression, and adds the series that it reads to used.
func (e exported) check(expression string, used map[string]bool) (mistakes []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return []string{err.Error()}
	}
	known := slices.Clone(scrapeLabels)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			used[v.Name] = true
			known = slices.AppendSeq(known, maps.Keys(e[v.Name]))
			mistakes = append(mistakes, e.checkSelector(v)...)
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		var names []string
		switch n := node.(type) {
		case *parser.AggregateExpr:
			names = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include)
			}
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				mistakes = append(mistakes, "no series of the expression has the label "+name)
			}
		}
		return nil
	})
	return mistakes
}

func (e exported) checkSelector(v *parser.VectorSelector) (mistakes []string) {
	has, ok := e[v.Name]
	if !ok {
		return []string{v.Name + " is not exported"}
	}
	for _, m := range v.LabelMatchers {
		if m.Name == model.MetricNameLabel || slices.Contains(scrapeLabels, m.Name) {
			continue
		}
		values, ok := has[m.Name]
		if !ok {
			mistakes = append(mistakes, v.Name+" has no label "+m.Name)
		} else if m.Type == labels.MatchEqual && !values[m.Value] {
			mistakes = append(mistakes, fmt.Sprintf("no %s has %s", v.Name, m))
		}
	}
	return mistakes
}

// TestRules runs promtool on the rules and on their tests. Each alert has a test in which it fires.
func TestRules(t *testing.T) {
	text := read(t, "rules_test.yaml", &struct{}{})
	for _, r := range rules(t) {
		if n := bytes.Count(text, []byte(r.Alert)); n < 2 && !regexp.MustCompile(`Postern.*Expires`).MatchString(r.Alert) {
			t.Errorf("%s is in rules_test.yaml %d times, want a test in which it fires and one in which it does not", r.Alert, n)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s lacks a summary, a description or a severity", r.Alert)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing, so the rules are NOT tested. On Debian: apt-get install -y --no-install-recommends prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// run runs Postern twice, once with a CA of its own and once with that CA's certificate from files, so that the paths have
// no secret segment and can be called. It returns what the two processes export.
func run(t *testing.T) exported {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/version" {
			_, _ = io.WriteString(w, `{"gitVersion":"v1.37.1"}`)
			return
		}
		if strings.HasPrefix(req.URL.Path, "/apis/node.k8s.io/") {
			http.Error(w, "an outage", http.StatusInternalServerError)
			return
		}
		http.NotFound(w, req)
	}))
	t.Cleanup(api.Close)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := fmt.Sprintf(`{"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, api.URL)
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "postern")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", filepath.Join("..", ".."), "-o", binary, "./cmd/postern").CombinedOutput(); err != nil {
		t.Fatalf("Building postern: %v\n%s", err, out)
	}
	all := exported{}
	own := start(t, binary, "--kubeconfig="+kubeconfig, "--cert-dir="+dir)
	own.scrape(t, all)
	files := start(t, binary, "--kubeconfig="+kubeconfig, "--tls-cert-file="+filepath.Join(dir, "ca.crt"), "--tls-private-key-file="+filepath.Join(dir, "ca.key"))
	files.post(t, `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"c","image":"i"}]}}`, http.StatusOK)
	files.post(t, `{"apiVersion":"v1","kind":"Pod","spec":{"runtimeClassName":"away","containers":[{"name":"c","image":"i"}]}}`, http.StatusInternalServerError)
	files.post(t, ``, http.StatusBadRequest)
	files.scrape(t, all)
	return all
}

// process is a Postern that serves.
type process struct {
	secure, health string
	stderr         string
}

func start(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	p := &process{secure: freePort(t), health: freePort(t), stderr: filepath.Join(t.TempDir(), "stderr")}
	log, err := os.Create(p.stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	args = append(args, "--bind-address=127.0.0.1", "--secure-port="+p.secure, "--health-bind-address=127.0.0.1:"+p.health,
		"--webhook-url=https://127.0.0.1:"+p.secure, "--admission-control=AlwaysPullImages,AlwaysDeny,RuntimeClass", "--admission-control-config-file="+denials(t))
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatalf("Starting postern: %v", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	deadline := time.Now().Add(time.Minute)
	for {
		resp, err := http.Get("http://127.0.0.1:" + p.health + "/metrics")
		if err == nil {
			resp.Body.Close()
			return p
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("Postern exited: %v\n%s", err, p.log())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("Postern does not serve metrics: %v", err)
		}
	}
}

func (p *process) log() string {
	text, err := os.ReadFile(p.stderr)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// denials returns a configuration with which AlwaysDeny denies what is in the namespace frozen.
func denials(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "admission.yaml")
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: AlwaysDeny\n  configuration: {namespaces: [frozen]}\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// post sends a review of a new pod to both halves of two families. An empty object stands for a body that is no review.
func (p *process) post(t *testing.T, object string, want int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	review, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": map[string]any{
		"uid": "1", "operation": "CREATE", "name": "p", "namespace": "frozen", "object": json.RawMessage(cmp.Or(object, "{}")), "options": nil,
		"kind":     map[string]string{"version": "v1", "kind": "Pod"},
		"resource": map[string]string{"version": "v1", "resource": "pods"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if object == "" {
		review = []byte("x")
	}
	for _, path := range []string{"/pods/mutate", "/always/validate"} {
		resp, err := client.Post("https://127.0.0.1:"+p.secure+path, "application/json", bytes.NewReader(review))
		if err != nil {
			t.Fatalf("Calling %s: %v", path, err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if path == "/pods/mutate" && resp.StatusCode != want {
			t.Fatalf("%s: got status %d and %s, want %d\n%s", path, resp.StatusCode, body, want, p.log())
		}
	}
}

// scrape adds what the process exports.
func (p *process) scrape(t *testing.T, into exported) {
	t.Helper()
	resp, err := http.Get("http://127.0.0.1:" + p.health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := expfmt.NewTextParser(model.UTF8Validation)
	families, err := text.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("Parsing the metrics: %v", err)
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			names := []string{name}
			if m.GetHistogram() != nil {
				names = []string{name + "_sum", name + "_count", name + "_bucket"}
			}
			for _, n := range names {
				if into[n] == nil {
					into[n] = map[string]map[string]bool{}
				}
				for _, l := range m.GetLabel() {
					if into[n][l.GetName()] == nil {
						into[n][l.GetName()] = map[string]bool{}
					}
					into[n][l.GetName()][l.GetValue()] = true
				}
			}
			if m.GetHistogram() != nil {
				into[name+"_bucket"]["le"] = map[string]bool{}
			}
		}
	}
}
