package app

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

const (
	// admissionMetric is the histogram in which kube-apiserver counts the requests of each admission plugin.
	admissionMetric = "apiserver_admission_controller_admission_duration_seconds"
	// apiServerMetricsTimeout is the time-out of the request for the metrics, which are several megabytes on a large
	// cluster.
	apiServerMetricsTimeout = 30 * time.Second
	// maxMetricsLine is the largest size of a line of the metrics in bytes. Lines of kube-apiserver are far shorter.
	maxMetricsLine = 1 << 20
)

// errNotShown is returned if the metrics of the API server cannot be read.
var errNotShown = errors.New("it is not known which plugins the API server runs")

// apiServerPlugins returns the plugins that had a request in the API server. It returns errNotShown if no cluster is
// configured, or if the user may not read the metrics.
func apiServerPlugins(ctx context.Context, kubeconfig string) (map[string]bool, error) {
	c, err := newCluster(kubeconfig)
	if kubeconfig == "" && errors.Is(err, rest.ErrNotInCluster) {
		return nil, fmt.Errorf("%w: no --kubeconfig, and not in a pod", errNotShown)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, apiServerMetricsTimeout)
	defer cancel()
	body, err := c.client.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").Stream(ctx)
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %w", errNotShown, err)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics of the API server: %w", err)
	}
	defer body.Close()
	seen, err := pluginsOf(body)
	if err != nil {
		return nil, fmt.Errorf("metrics of the API server: %w", err)
	}
	return seen, nil
}

// pluginsOf returns the plugins in the metrics. It parses only the lines of one metric.
func pluginsOf(metrics io.Reader) (map[string]bool, error) {
	var lines bytes.Buffer
	scanner := bufio.NewScanner(metrics)
	scanner.Buffer(nil, maxMetricsLine)
	for scanner.Scan() {
		if line := scanner.Bytes(); bytes.HasPrefix(bytes.TrimPrefix(line, []byte("# TYPE ")), []byte(admissionMetric)) {
			lines.Write(line)
			lines.WriteByte('\n')
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&lines)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, m := range families[admissionMetric].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "name" {
				seen[label.GetValue()] = true
			}
		}
	}
	return seen, nil
}
