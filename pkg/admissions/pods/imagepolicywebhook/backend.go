package imagepolicywebhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	servers "github.com/postern-dev/postern/internal/backend"
)

const (
	// requestTimeout bounds a single HTTP request. It is also sent to the backend as ?timeout=, as kube-apiserver does.
	requestTimeout = 30 * time.Second
	// attempts is the number of requests for one review if the backend sends no Retry-After header.
	attempts = 5
	// closedIdle is the text of an error of net/http that is not exported: the backend closed an idle connection while
	// the request was sent on it. net/http repeats only requests without a body.
	closedIdle = "http: server closed idle connection"
	// maxStatus is the limit for the part of an answer that does not repeat the review, in bytes.
	maxStatus = 64 << 10
)

// backend is a client of the server that reviews images.
type backend struct {
	client  *rest.RESTClient
	backoff time.Duration
}

// newBackend returns a client for the server in a kubeconfig. Unlike kube-apiserver, it does not fall back to the API
// server of its pod if the kubeconfig is empty.
func newBackend(kubeconfig string, backoff time.Duration) (*backend, *rest.Config, error) {
	config, err := servers.Kubeconfig(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	scheme := runtime.NewScheme()
	if err := imagepolicyv1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, fmt.Errorf("making the scheme: %w", err)
	}
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(imagepolicyv1alpha1.SchemeGroupVersion)
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	config.Timeout = requestTimeout
	// The bound on waiting requests limits the rate.
	config.QPS = -1
	// The backend must not write into Postern's log.
	config.WarningHandler = rest.NoWarnings{}
	client, err := servers.NewClient(config, servers.Limit{Bytes: maxStatus, PerByteSent: 4})
	if err != nil {
		return nil, nil, err
	}
	restClient, err := rest.UnversionedRESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, nil, err
	}
	return &backend{client: restClient, backoff: backoff}, config, nil
}

// review sends a review until the backend answers it. A retry must fit into the deadline of the context. It returns the
// error of the last attempt.
//
// Upstream: k8s.io/apiserver/pkg/util/webhook GenericWebhook. Its client also repeats an attempt up to ten times if the
// answer has a Retry-After header.
func (b *backend) review(ctx context.Context, spec imagepolicyv1alpha1.ImageReviewSpec) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	backoff := wait.Backoff{Duration: b.backoff, Factor: 1.5, Jitter: 0.2, Steps: attempts}
	for {
		// With retries of its own, client-go would wait for any Retry-After, also beyond the deadline.
		result := b.client.Post().MaxRetries(0).Body(&imagepolicyv1alpha1.ImageReview{Spec: spec}).Do(ctx)
		err := result.Error()
		if err == nil {
			return statusOf(result)
		}
		pause, again := pauseAfter(err, &backoff)
		if !again || !servers.HasTime(ctx, pause) {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// pauseAfter returns the time until the next attempt, and whether there is one.
func pauseAfter(err error, backoff *wait.Backoff) (time.Duration, bool) {
	seconds, advised := apierrors.SuggestsClientDelay(err)
	switch {
	case advised && seconds > 0:
		return time.Duration(seconds) * time.Second, true
	case !advised && !isTransient(err), backoff.Steps <= 1:
		return 0, false
	}
	return backoff.Step(), true
}

// isTransient reports whether a retry may succeed. Unlike kube-apiserver, it includes connections that the backend
// closed without an answer, such as those of a backend that was restarted.
func isTransient(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsProbableEOF(err) ||
		strings.Contains(err.Error(), closedIdle) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

func statusOf(result rest.Result) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	var code int
	if result.StatusCode(&code); code < http.StatusOK || code >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("the image policy backend answered with code %d", code)
	}
	var review imagepolicyv1alpha1.ImageReview
	if err := result.Into(&review); err != nil {
		return nil, err
	}
	return &review.Status, nil
}
