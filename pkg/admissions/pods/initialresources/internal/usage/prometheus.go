package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/internal/backend"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// maxAnswer bounds the body of an answer. An answer is one number.
	maxAnswer = 64 << 10
	// maxValue bounds a number that is not nonsense.
	maxValue = 1e15
)

// Queries are the queries for one resource. Each returns one number, or nothing.
type Queries struct {
	// Usage returns cores or bytes.
	Usage string `json:"usage"`
	// Samples returns the number of samples.
	Samples string `json:"samples"`
}

// PrometheusConfig configures an HTTP server with the query API of Prometheus.
type PrometheusConfig struct {
	URL string `json:"url"`
	// CAFile holds the CA certificates that verify the server. If it is unset, the CAs of the system do.
	CAFile string `json:"caFile"`
	// ServerName is the name in the certificate of the server, if it is not the host of the URL.
	ServerName string `json:"serverName"`
	// CertFile and KeyFile are a client certificate.
	CertFile        string `json:"certFile"`
	KeyFile         string `json:"keyFile"`
	BearerTokenFile string `json:"bearerTokenFile"`
	// Queries are by resource, cpu or memory. An unset query has a default for the metrics of cAdvisor.
	Queries map[corev1.ResourceName]Queries `json:"queries"`
}

// defaultQueries returns the queries for the metrics of cAdvisor, which the kubelet serves. A sample is the usage of one
// container in five minutes.
func defaultQueries() map[corev1.ResourceName]Queries {
	const (
		labels = `{container!="",image=~$image,namespace=~$namespace}`
		cpu    = "rate(container_cpu_usage_seconds_total" + labels + "[5m])[$window:5m]"
		memory = "container_memory_working_set_bytes" + labels + "[$window:5m]"
	)
	of := func(samples string) Queries {
		return Queries{
			Usage:   "quantile($quantile, quantile_over_time($quantile, " + samples + "))",
			Samples: "sum(count_over_time(" + samples + "))",
		}
	}
	return map[corev1.ResourceName]Queries{corev1.ResourceCPU: of(cpu), corev1.ResourceMemory: of(memory)}
}

// prometheus is a Source that asks a server.
type prometheus struct {
	api        prometheusv1.API
	percentile int64
	timeout    time.Duration
	usage      map[corev1.ResourceName]promQL
	samples    map[corev1.ResourceName]promQL
}

// NewPrometheus returns a Source that asks a server. Percentile is from 0 to 100, and timeout bounds one query. An error
// is an *admit.ConfigError. NewPrometheus does not connect to the server.
func NewPrometheus(c PrometheusConfig, percentile int64, timeout time.Duration) (Source, error) {
	httpClient, err := c.client()
	if err != nil {
		return nil, err
	}
	client, err := api.NewClient(api.Config{Address: c.URL, Client: httpClient})
	if err != nil {
		return nil, admit.InvalidField("url", "%w", err)
	}
	p := &prometheus{
		api: prometheusv1.NewAPI(client), percentile: percentile, timeout: timeout,
		usage: map[corev1.ResourceName]promQL{}, samples: map[corev1.ResourceName]promQL{},
	}
	for name := range c.Queries {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			return nil, admit.InvalidField("queries."+string(name), "want cpu or memory")
		}
	}
	for name, q := range defaultQueries() {
		usage, samples := cmp.Or(c.Queries[name].Usage, q.Usage), cmp.Or(c.Queries[name].Samples, q.Samples)
		if p.usage[name], err = parsePromQL(usage, imagePlaceholder, namespacePlaceholder, windowPlaceholder, quantilePlaceholder); err != nil {
			return nil, admit.InvalidField("queries."+string(name)+".usage", "%w", err)
		}
		if p.samples[name], err = parsePromQL(samples, imagePlaceholder, namespacePlaceholder, windowPlaceholder); err != nil {
			return nil, admit.InvalidField("queries."+string(name)+".samples", "%w", err)
		}
	}
	return p, nil
}

// client checks the configuration of the connection.
func (c *PrometheusConfig) client() (*http.Client, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, admit.InvalidField("url", "%w", err)
	case (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, admit.InvalidField("url", "got %q, want https://host or https://host/path", c.URL)
	case u.User != nil:
		return nil, admit.InvalidField("url", "it has a user in it; put a token into bearerTokenFile")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return nil, admit.InvalidField("certFile", "certFile and keyFile go together")
	case u.Scheme == "http" && c.BearerTokenFile != "":
		return nil, admit.InvalidField("bearerTokenFile", "everybody on the way could read the token, want an https URL")
	case u.Scheme == "http" && (c.CAFile != "" || c.CertFile != "" || c.ServerName != ""):
		return nil, admit.InvalidField("url", "caFile, certFile, keyFile and serverName want an https URL")
	}
	client, err := backend.NewClient(&rest.Config{
		Host: c.URL, BearerTokenFile: c.BearerTokenFile,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, ServerName: c.ServerName},
	}, backend.Limit{Bytes: maxAnswer})
	if err != nil {
		return nil, admit.InvalidField("", "%w", err)
	}
	return client, nil
}

// Percentile implements Source. It asks for the usage only if there are samples.
func (p *prometheus) Percentile(ctx context.Context, q Query) (Answer, error) {
	samples, err := p.ask(ctx, p.samples[q.Resource].expand(q, p.percentile))
	if err != nil {
		return Answer{}, fmt.Errorf("counting the samples of %s: %w", q.Resource, err)
	}
	if samples = math.Floor(samples); !isSane(samples) {
		return Answer{}, nil
	}
	usage, err := p.ask(ctx, p.usage[q.Resource].expand(q, p.percentile))
	if err != nil {
		return Answer{}, fmt.Errorf("reading the usage of %s: %w", q.Resource, err)
	}
	if q.Resource == corev1.ResourceCPU {
		usage *= 1000
	}
	if !isSane(usage) {
		return Answer{}, nil
	}
	return Answer{Value: int64(math.Ceil(usage)), Samples: int64(samples)}, nil
}

// isSane is false for zero, negative numbers, infinity, NaN, and numbers that are too large to be a usage.
func isSane(v float64) bool { return v > 0 && v <= maxValue }

// ask returns the only number of the result, or 0 if the result is empty.
func (p *prometheus) ask(ctx context.Context, query string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	// The server stops the evaluation when nobody waits for the result.
	result, _, err := p.api.Query(ctx, query, time.Time{}, prometheusv1.WithTimeout(p.timeout))
	if err != nil {
		return 0, err
	}
	switch v := result.(type) {
	case *model.Scalar:
		return float64(v.Value), nil
	case model.Vector:
		switch {
		case len(v) == 0:
			return 0, nil
		case len(v) == 1 && v[0].Histogram == nil:
			return float64(v[0].Value), nil
		}
	}
	return 0, errors.New("the result is not one number")
}

// namespacePattern returns the regular expression for the label of a namespace, or of all.
func namespacePattern(namespace string) string {
	if namespace == "" {
		return ".*"
	}
	return regexp.QuoteMeta(namespace)
}
