package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/internal/pages"
	"github.com/postern-dev/postern/internal/reads"
	"github.com/postern-dev/postern/internal/servertime"
)

const (
	// noLimit is a QPS without a client-side limit. All requests would share that limit, so one user could delay the requests of
	// others. pkg/router bounds the calls for each tenant, and API priority and fairness those of all replicas.
	noLimit = -1

	// reachTimeout is the time-out of one attempt, and reachPause is the pause between two attempts.
	reachTimeout = 5 * time.Second
	reachPause   = time.Second

	// refusalPeriod is how long an API server refuses credentials that stay the same before the process ends. An API server that has
	// just started may refuse valid credentials for some seconds, while its authenticators are not ready or while it does not know
	// the service account of a token.
	refusalPeriod = 10 * time.Second
)

// cluster holds the clients of the API server.
type cluster struct {
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	// credentials follows the word "requests" in errors. It says where the credentials for the API server are, or that there are
	// none. Lasting is true if neither a file nor a plugin can change them while the process runs.
	credentials string
	lasting     bool
	// time tells the time of the API server.
	time *servertime.Clock
}

func newCluster(kubeconfig string) (*cluster, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := newClients(config)
	if err != nil {
		return nil, err
	}
	c.credentials = whose(config, kubeconfig)
	return c, nil
}

// whose returns the field credentials of a cluster.
func whose(config *rest.Config, kubeconfig string) string {
	if kubeconfig == "" {
		return "with the credentials of " + config.BearerTokenFile
	}
	if lasting(config) && config.BearerToken == "" && config.Username == "" && len(config.CertData) == 0 {
		none := fmt.Sprintf("without credentials, and the kubeconfig %s has no credentials", kubeconfig)
		// client-go leaves out the credentials of a user for such a server.
		if !rest.IsConfigTransportTLS(*config) {
			none += " for a server without https"
		}
		return none
	}
	if file, err := clientcmd.LoadFromFile(kubeconfig); err == nil && file.Contexts[file.CurrentContext] != nil {
		return fmt.Sprintf("with the credentials of the user %s in %s", file.Contexts[file.CurrentContext].AuthInfo, kubeconfig)
	}
	return "with the credentials of " + kubeconfig
}

// lasting reports whether neither a file nor a plugin can change the credentials of a configuration.
func lasting(config *rest.Config) bool {
	return config.BearerTokenFile == "" && config.CertFile == "" && config.ExecProvider == nil && config.AuthProvider == nil
}

// newClients makes the clients of an API server without calling it.
func newClients(config *rest.Config) (*cluster, error) {
	config.QPS = noLimit
	config.UserAgent = "postern/" + posternVersion()
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	now := servertime.New()
	config.Wrap(now.Transport(base))
	config.Wrap(reads.Transport)
	config.Wrap(pages.Transport)
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	// For lists of pods or nodes, protobuf takes a third of the CPU time of JSON.
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return &cluster{client: client, dynamic: dyn, metadata: meta, lasting: lasting(config), time: now}, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("cluster: not in a pod, and no --kubeconfig: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, nil
}

// reach waits until the API server answers, at most for the given time. If the API server refuses credentials that stay the same,
// reach ends after refusalPeriod. Those of a file or a plugin may change, and a restart of the pod would take longer. Roles may come
// later for any credentials, so reach waits while the API server forbids the request.
func (c *cluster) reach(ctx context.Context, timeout time.Duration) error {
	log := klog.FromContext(ctx)
	deadline := time.Now().Add(timeout)
	var refusedSince time.Time
	for attempt := 1; ; attempt++ {
		v, err := c.serverVersion(ctx, min(reachTimeout, max(reachPause, time.Until(deadline))))
		if err == nil {
			log.Info("Reached the API server", "version", v.GitVersion)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stopped while waiting for the API server: %w", ctx.Err())
		}
		switch {
		case !apierrors.IsUnauthorized(err):
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = time.Now()
		}
		refused := c.lasting && !refusedSince.IsZero() && time.Since(refusedSince) >= refusalPeriod
		if refused || time.Now().Add(reachPause).After(deadline) {
			return c.unreached(err, timeout)
		}
		if attempt%5 == 1 {
			log.Info("Waiting for the API server", "err", err, "giveUpAfter", max(0, time.Until(deadline)).Round(time.Second))
		}
		select {
		case <-ctx.Done():
		case <-time.After(reachPause):
		}
	}
}

// unreached explains the error of the last attempt.
func (c *cluster) unreached(err error, timeout time.Duration) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server refuses requests %s: %w", c.credentials, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the API server forbids requests %s: %w", c.credentials, err)
	default:
		return fmt.Errorf("no cluster reachable within %v: %w", timeout, err)
	}
}

// serverVersion does what the method of the discovery client does, but its error has the message of the API server.
func (c *cluster) serverVersion(ctx context.Context, timeout time.Duration) (*version.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result := c.client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	text, err := result.Raw()
	if err != nil {
		return nil, err
	}
	var v version.Info
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("the version of the API server: %w", err)
	}
	return &v, nil
}
