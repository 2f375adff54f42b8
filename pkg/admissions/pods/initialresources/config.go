package initialresources

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/postern-dev/postern/pkg/admissions/pods/initialresources/internal/usage"
	"github.com/postern-dev/postern/pkg/admit"
)

// config is the plugin's configuration. kube-apiserver's plugin has only flags.
type config struct {
	// A data source is used if it is the only one in the configuration, or if --ir-data-source names it.
	Prometheus *prometheusConfig `json:"prometheus"`
	File       *fileConfig       `json:"file"`
	VPA        *struct{}         `json:"vpa"`
	// Maximum is the largest estimate that is used. A larger request could keep the pod pending.
	Maximum map[corev1.ResourceName]resource.Quantity `json:"maximum"`
}

type prometheusConfig struct {
	usage.PrometheusConfig `json:",inline"`

	// The durations have Go's format. Timeout is the time-out of one query. RefreshInterval is the age at which an
	// answer is refreshed on its next use.
	Timeout         string `json:"timeout"`
	RefreshInterval string `json:"refreshInterval"`
	// CacheSize is the largest number of cached answers, and ConcurrentQueries the largest number of concurrent
	// queries.
	CacheSize         int `json:"cacheSize"`
	ConcurrentQueries int `json:"concurrentQueries"`
}

// fileConfig is a static table, in a file or in the configuration.
type fileConfig struct {
	Path  string        `json:"path"`
	Usage []usage.Entry `json:"usage"`
}

func dataSource() admit.Flag {
	return admit.Flag{Name: "ir-data-source", Usage: "Data source of the estimates: prometheus, vpa or file. The one in the plugin's configuration if not set."}
}

func percentile() admit.Flag {
	return admit.Flag{Name: "ir-percentile", Default: "90", Usage: "Which percentile of the samples is the estimate."}
}

func namespaceOnly() admit.Flag {
	return admit.Flag{Name: "ir-namespace-only", Default: "false", Usage: "Whether only data from the namespace of the pod counts."}
}

func newPlugin(d admit.Deps, data []byte) (*plugin, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return nil, err
	}
	percent, err := strconv.ParseInt(d.Flag(percentile()), 10, 64)
	if err != nil || percent < 0 || percent > 100 {
		return nil, fmt.Errorf("--%s: want a number from 0 to 100, not %q", percentile().Name, d.Flag(percentile()))
	}
	only, err := strconv.ParseBool(d.Flag(namespaceOnly()))
	if err != nil {
		return nil, fmt.Errorf("--%s: want true or false, not %q", namespaceOnly().Name, d.Flag(namespaceOnly()))
	}
	p := &plugin{}
	if p.maximum, err = c.maximum(); err != nil {
		return nil, err
	}
	source, err := c.source(d.Flag(dataSource()))
	if err != nil {
		return nil, err
	}
	switch source {
	case "file":
		p.estimator, err = c.File.estimator(only)
	case "vpa":
		p.estimator, err = newRecommendations(d)
	default:
		p.estimator, err = c.Prometheus.estimator(d, percent, only)
	}
	return p, err
}

func (c config) maximum() (map[corev1.ResourceName]int64, error) {
	maximum := map[corev1.ResourceName]int64{corev1.ResourceCPU: 64_000, corev1.ResourceMemory: 256 << 30}
	for name, q := range c.Maximum {
		if _, known := maximum[name]; !known {
			return nil, admit.InvalidField("maximum."+string(name), "want cpu or memory")
		}
		if maximum[name] = usage.Amount(name, q); maximum[name] < 1 {
			return nil, admit.InvalidField("maximum."+string(name), "want more than 0, not %s", &q)
		}
	}
	return maximum, nil
}

// source returns the name of the data source.
func (c config) source(flag string) (string, error) {
	var given []string
	for _, s := range []struct {
		name  string
		given bool
	}{{"prometheus", c.Prometheus != nil}, {"vpa", c.VPA != nil}, {"file", c.File != nil}} {
		if s.given {
			given = append(given, s.name)
		}
	}
	const example = `such as {"prometheus": {"url": "http://prometheus.monitoring:9090"}}`
	switch {
	case flag == "" && len(given) == 1:
		return given[0], nil
	case flag == "" && len(given) == 0:
		return "", errors.New("it needs a configuration with a data source, " + example)
	case flag == "":
		return "", fmt.Errorf("the configuration has several data sources, want one of %s in --ir-data-source", strings.Join(given, ", "))
	case flag == "prometheus" && c.Prometheus == nil:
		return "", errors.New("--ir-data-source=prometheus needs a configuration with the server, " + example)
	case flag == "file" && c.File == nil:
		return "", errors.New(`--ir-data-source=file needs a configuration with the file, such as {"file": {"path": "/etc/postern/usage.yaml"}}`)
	case flag == "prometheus" || flag == "vpa" || flag == "file":
		return flag, nil
	}
	if instead := gone()[flag]; instead != "" {
		return "", fmt.Errorf("--ir-data-source: %s", instead)
	}
	return "", fmt.Errorf("--ir-data-source: unknown data source %q, want prometheus, vpa or file", flag)
}

// gone returns the data sources of kube-apiserver's plugin that this plugin does not have, with an alternative for
// each.
func gone() map[string]string {
	return map[string]string{
		"influxdb": "influxdb is not supported, as in the last releases of kube-apiserver's plugin, where every query failed; use prometheus",
		"gcm":      "gcm is not supported, because Google turned off the API that it used; use prometheus with the query API of Google Cloud Managed Service for Prometheus",
		"hawkular": "hawkular is not supported, because the project ended; use prometheus",
	}
}

func (c *fileConfig) estimator(only bool) (estimator, error) {
	table, at := *c, "file"
	switch {
	case c.Path != "" && c.Usage != nil:
		return nil, admit.InvalidField("file.path", "there is a usage here already, want one of the two")
	case c.Path != "":
		data, err := os.ReadFile(c.Path)
		if err != nil {
			return nil, admit.InvalidField("file.path", "%w", err)
		}
		content := struct {
			Usage []usage.Entry `json:"usage"`
		}{}
		if err := admit.DecodeConfig(data, &content); err != nil {
			return nil, admit.InvalidField("file.path", "%s: %w", c.Path, err)
		}
		table.Usage, at = content.Usage, ""
	}
	if len(table.Usage) == 0 {
		return nil, admit.InvalidField("file", "want a usage with one entry at least, here or in the file of path")
	}
	source, err := usage.NewTable(table.Usage, only)
	if err != nil && at == "" {
		return nil, admit.InvalidField("file.path", "%s: %w", c.Path, err)
	}
	if err != nil {
		return nil, below(at, err)
	}
	return &direct{source, only}, nil
}

func (c *prometheusConfig) estimator(d admit.Deps, percent int64, only bool) (estimator, error) {
	b := &background{clock: d.Clock, namespaceOnly: only, failures: rate.Sometimes{Interval: retryInterval}}
	var timeout time.Duration
	for _, field := range []struct {
		name, text, otherwise string
		least, most           time.Duration
		into                  *time.Duration
	}{
		{"timeout", c.Timeout, "10s", time.Millisecond, time.Minute, &timeout},
		{"refreshInterval", c.RefreshInterval, "10m", time.Minute, maxAge, &b.refresh},
	} {
		var err error
		if *field.into, err = time.ParseDuration(cmp.Or(field.text, field.otherwise)); err != nil || *field.into < field.least || *field.into > field.most {
			return nil, admit.InvalidField("prometheus."+field.name, "got %q, want a duration such as %s, from %s to %s", field.text, field.otherwise, field.least, field.most)
		}
	}
	size, concurrent := cmp.Or(c.CacheSize, 4096), cmp.Or(c.ConcurrentQueries, 4)
	switch {
	case size < 1:
		return nil, admit.InvalidField("prometheus.cacheSize", "want 1 at least, not %d", size)
	case concurrent < 1 || concurrent > maxPending:
		return nil, admit.InvalidField("prometheus.concurrentQueries", "want a number from 1 to %d, not %d", maxPending, concurrent)
	}
	source, err := usage.NewPrometheus(c.PrometheusConfig, percent, timeout)
	if err != nil {
		return nil, below("prometheus", err)
	}
	return b.start(source, size, concurrent, d.Metrics)
}

// below prepends the parent field to the field that err names.
func below(field string, err error) error {
	if wrong, ok := errors.AsType[*admit.ConfigError](err); ok && wrong.Field != "" {
		return admit.InvalidField(field+"."+wrong.Field, "%w", wrong.Err)
	}
	return admit.InvalidField(field, "%w", err)
}
