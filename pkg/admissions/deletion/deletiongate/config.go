package deletiongate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	servers "github.com/postern-dev/postern/internal/backend"
	"github.com/postern-dev/postern/internal/kinds/namespacenames"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// maxGates bounds the size of the match conditions.
	maxGates = 16

	failClosed = "Fail"
	failOpen   = "Ignore"

	defaultMaxWait    = time.Hour
	longestMaxWait    = 30 * 24 * time.Hour
	defaultRetryAfter = 5
	longestRetryAfter = 300
	defaultTimeout    = 5
	longestTimeout    = 25
)

// config is the configuration of the plugin.
type config struct {
	Gates []gateConfig `json:"gates"`
}

// gateConfig is the configuration of one gate.
type gateConfig struct {
	Name string `json:"name"`
	// Namespaces are the namespaces whose pods have the gate. An empty list is all namespaces.
	Namespaces []string `json:"namespaces"`
	// Selector and Annotations select pods. If both are set, a pod must match both.
	Selector    *metav1.LabelSelector `json:"selector"`
	Annotations map[string]string     `json:"annotations"`
	// Backend and PodCondition decide. Exactly one of them is set.
	Backend      *backendConfig `json:"backend"`
	PodCondition string         `json:"podCondition"`
	// MaxWait is how long a pod waits at most.
	MaxWait metav1.Duration `json:"maxWait"`
	// RetryAfterSeconds is the Retry-After of refusals.
	RetryAfterSeconds int `json:"retryAfterSeconds"`
}

// backendConfig is a server that decides. It is given by a kubeconfig, or by a URL and files.
type backendConfig struct {
	KubeConfigFile        string `json:"kubeConfigFile"`
	URL                   string `json:"url"`
	CAFile                string `json:"caFile"`
	ClientCertificateFile string `json:"clientCertificateFile"`
	ClientKeyFile         string `json:"clientKeyFile"`
	TimeoutSeconds        int    `json:"timeoutSeconds"`
	// FailurePolicy is Fail or Ignore.
	FailurePolicy string `json:"failurePolicy"`
}

// gate is one gate with its defaults.
type gate struct {
	gateConfig
	selector labels.Selector
	// backend is nil for a gate that waits for a condition of the pod.
	backend *backend
}

func load(data []byte) ([]*gate, error) {
	c, err := admit.LoadConfig[config](data)
	if err != nil {
		return nil, err
	}
	switch {
	case len(c.Gates) == 0:
		return nil, admit.InvalidField("gates", "at least one gate is required")
	case len(c.Gates) > maxGates:
		return nil, admit.InvalidField("gates", "there are %d, at most %d are possible", len(c.Gates), maxGates)
	}
	var gates []*gate
	for i, gc := range c.Gates {
		field := fmt.Sprintf("gates[%d]", i)
		if slices.ContainsFunc(gates, func(g *gate) bool { return g.Name == gc.Name }) {
			return nil, admit.InvalidField(field+".name", "there are two gates %q", gc.Name)
		}
		g, err := newGate(field, gc)
		if err != nil {
			return nil, err
		}
		gates = append(gates, g)
	}
	return gates, nil
}

func newGate(field string, c gateConfig) (*gate, error) {
	g := &gate{gateConfig: c}
	if wrong := validation.IsDNS1123Label(c.Name); len(wrong) > 0 {
		return nil, admit.InvalidField(field+".name", "%q: %s", c.Name, wrong[0])
	}
	if err := namespacenames.CheckNames(field+".namespaces", c.Namespaces); err != nil {
		return nil, err
	}
	if err := g.checkSelectors(field); err != nil {
		return nil, err
	}
	g.MaxWait.Duration = cmp.Or(c.MaxWait.Duration, defaultMaxWait)
	if d := g.MaxWait.Duration; d < time.Second || d > longestMaxWait {
		return nil, admit.InvalidField(field+".maxWait", "%v is not between %v and %v", d, time.Second, longestMaxWait)
	}
	g.RetryAfterSeconds = cmp.Or(c.RetryAfterSeconds, defaultRetryAfter)
	if s := g.RetryAfterSeconds; s < 1 || s > longestRetryAfter {
		return nil, admit.InvalidField(field+".retryAfterSeconds", "%d is not between 1 and %d", s, longestRetryAfter)
	}
	switch {
	case (c.Backend == nil) == (c.PodCondition == ""):
		return nil, admit.InvalidField(field, "want either backend or podCondition")
	case c.Backend == nil:
		if wrong := validation.IsQualifiedName(c.PodCondition); len(wrong) > 0 {
			return nil, admit.InvalidField(field+".podCondition", "%q: %s", c.PodCondition, wrong[0])
		}
		return g, nil
	}
	var err error
	g.backend, err = c.Backend.load(field + ".backend")
	return g, err
}

// checkSelectors returns an error for a gate that would select all pods. The values of annotations have the syntax of
// label values, which bounds the size of the match conditions.
func (g *gate) checkSelectors(field string) error {
	var err error
	if g.selector, err = metav1.LabelSelectorAsSelector(g.Selector); err != nil {
		return admit.InvalidField(field+".selector", "%w", err)
	}
	if g.Selector == nil {
		g.selector = labels.Everything()
	}
	if g.selector.Empty() && len(g.Annotations) == 0 {
		return admit.InvalidField(field, "want a selector or annotations: a gate does not select all pods")
	}
	for key, value := range g.Annotations {
		if wrong := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(wrong) > 0 {
			return admit.InvalidField(field+".annotations", "%s=%s: %s", key, value, wrong[0])
		}
	}
	return nil
}

func (c backendConfig) load(field string) (*backend, error) {
	c.FailurePolicy = cmp.Or(c.FailurePolicy, failClosed)
	if c.FailurePolicy != failClosed && c.FailurePolicy != failOpen {
		return nil, admit.InvalidField(field+".failurePolicy", "%q is neither %s nor %s", c.FailurePolicy, failClosed, failOpen)
	}
	c.TimeoutSeconds = cmp.Or(c.TimeoutSeconds, defaultTimeout)
	if s := c.TimeoutSeconds; s < 1 || s > longestTimeout {
		return nil, admit.InvalidField(field+".timeoutSeconds", "%d is not between 1 and %d", s, longestTimeout)
	}
	source, config, err := c.restConfig()
	if err != nil {
		return nil, admit.InvalidField(field+"."+source, "%w", err)
	}
	at, err := url.Parse(config.Host)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		return nil, admit.InvalidField(field+"."+source, "the address %q does not begin with https://", config.Host)
	}
	client, err := servers.NewClient(config, servers.Limit{Bytes: maxAnswer})
	if err != nil {
		return nil, admit.InvalidField(field+"."+source, "%w", err)
	}
	return newBackend(client, at.String(), time.Duration(c.TimeoutSeconds)*time.Second, c.FailurePolicy == failOpen), nil
}

// restConfig returns the client configuration and the field that it comes from.
func (c backendConfig) restConfig() (string, *rest.Config, error) {
	if (c.KubeConfigFile == "") == (c.URL == "") {
		return "url", nil, errors.New("want either url or kubeConfigFile")
	}
	if c.URL != "" {
		return "url", &rest.Config{Host: c.URL, TLSClientConfig: rest.TLSClientConfig{
			CAFile: c.CAFile, CertFile: c.ClientCertificateFile, KeyFile: c.ClientKeyFile,
		}}, nil
	}
	if c.CAFile != "" || c.ClientCertificateFile != "" || c.ClientKeyFile != "" {
		return "kubeConfigFile", nil, errors.New("caFile, clientCertificateFile and clientKeyFile belong to url")
	}
	config, err := servers.Kubeconfig(c.KubeConfigFile)
	return "kubeConfigFile", config, err
}

// retryAfter returns the shortest Retry-After of some gates, in seconds.
func retryAfter(gates []*gate) int {
	seconds := math.MaxInt
	for _, g := range gates {
		seconds = min(seconds, g.RetryAfterSeconds)
	}
	return seconds
}
