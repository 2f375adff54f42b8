package app

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
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
)

// cluster holds the clients of the API server.
type cluster struct {
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	// credentials says where those for the API server are, for errors. Lasting is true if neither a file nor a plugin can change
	// them while the process runs.
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

// whose says where credentials are.
func whose(config *rest.Config, kubeconfig string) string {
	if kubeconfig == "" {
		return config.BearerTokenFile
	}
	if file, err := clientcmd.LoadFromFile(kubeconfig); err == nil && file.Contexts[file.CurrentContext] != nil {
		return fmt.Sprintf("the user %s in %s", file.Contexts[file.CurrentContext].AuthInfo, kubeconfig)
	}
	return kubeconfig
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
	lasting := config.BearerTokenFile == "" && config.CertFile == "" && config.ExecProvider == nil && config.AuthProvider == nil
	return &cluster{client: client, dynamic: dyn, metadata: meta, lasting: lasting, time: now}, nil
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

// reach waits until the API server answers, at most for the given time. It does not wait if the API server refuses credentials that
// stay the same. Those of a file or a plugin may change, and an API server may refuse the token of a pod for a short time, while it
// does not know the key or the service account yet: a restart of the pod would take longer.
func (c *cluster) reach(ctx context.Context, timeout time.Duration) error {
	log := klog.FromContext(ctx)
	deadline := time.Now().Add(timeout)
	for attempt := 1; ; attempt++ {
		v, err := c.serverVersion(ctx, min(reachTimeout, max(reachPause, time.Until(deadline))))
		if err == nil {
			log.Info("Reached the API server", "version", v.GitVersion)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stopped while waiting for the API server: %w", ctx.Err())
		}
		refused := apierrors.IsUnauthorized(err)
		if refused && c.lasting {
			return fmt.Errorf("the API server refuses the credentials of %s: %w", c.credentials, err)
		}
		if time.Now().Add(reachPause).After(deadline) {
			if refused {
				return fmt.Errorf("the API server refuses the credentials of %s, also after %v: %w", c.credentials, timeout, err)
			}
			return fmt.Errorf("no cluster reachable within %v: %w", timeout, err)
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

func (c *cluster) serverVersion(ctx context.Context, timeout time.Duration) (*version.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return discovery.ToDiscoveryInterfaceWithContext(c.client.Discovery()).ServerVersionWithContext(ctx)
}
