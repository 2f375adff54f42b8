package imagepolicywebhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// requestTimeout bounds a single HTTP request. It is also sent to the backend as ?timeout=, as kube-apiserver does.
	requestTimeout = 30 * time.Second
	// attempts is the number of requests for one review if the backend sends no Retry-After header.
	attempts = 5
	// closedIdle is the text of an error of net/http that is not exported: the backend closed an idle connection while
	// the request was sent on it. net/http repeats only requests without a body.
	closedIdle = "http: server closed idle connection"
	retryAfter = "Retry-After"
	// maxRedirects is the limit of net/http.
	maxRedirects = 10
)

// backend is a client of the server that reviews images.
type backend struct {
	client  *rest.RESTClient
	backoff time.Duration
}

// newBackend returns a client for the server in a kubeconfig. Unlike kube-apiserver, it does not fall back to the API
// server of its pod if the kubeconfig is empty.
func newBackend(kubeconfig string, backoff time.Duration) (*backend, *rest.Config, error) {
	config, err := loadKubeconfig(kubeconfig)
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
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	client.CheckRedirect = checkRedirect
	restClient, err := rest.UnversionedRESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, nil, err
	}
	return &backend{client: restClient, backoff: backoff}, config, nil
}

// loadKubeconfig reads a kubeconfig. A relative path in it is relative to its folder. client-go reads the client
// certificate when it connects; loadKubeconfig reads it too, so that a mistake stops the start.
func loadKubeconfig(file string) (*rest.Config, error) {
	raw, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}).Load()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*raw, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	if config.CertFile != "" && config.KeyFile != "" {
		if _, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile); err != nil {
			return nil, fmt.Errorf("client certificate %s with key %s: %w", config.CertFile, config.KeyFile, err)
		}
	}
	return config, nil
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
		if !again {
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause || !sleep(ctx, pause) {
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

// sleep returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
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

// checkRedirect follows redirects to the same server. kube-apiserver's plugin also follows redirects to other servers,
// and sends them the review and the credentials.
func checkRedirect(req *http.Request, via []*http.Request) error {
	switch first := via[0].URL; {
	case req.URL.Scheme != first.Scheme || !strings.EqualFold(req.URL.Host, first.Host):
		return fmt.Errorf("redirected to another server, %s://%s", req.URL.Scheme, req.URL.Host)
	case len(via) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

// bounded limits the size of answers, and the rate of retries to one per second. An answer may repeat the review, so its limit
// depends on the size of the request.
type bounded struct{ next http.RoundTripper }

// maxStatus is the limit for the part of an answer that does not repeat the review, in bytes.
const maxStatus = 64 << 10

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	// client-go does not report this header, although it asks for a retry.
	if resp.Header.Get(retryAfter) == "0" {
		resp.Header.Set(retryAfter, "1")
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, left: maxStatus + 4*max(req.ContentLength, 0)}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

var errTooLarge = errors.New("the answer of the image policy backend is too large")

// limitedBody fails if the body has more than left bytes.
type limitedBody struct {
	io.ReadCloser
	left int64
}

func (l *limitedBody) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}
