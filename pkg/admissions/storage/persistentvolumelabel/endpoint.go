package persistentvolumelabel

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	kjson "sigs.k8s.io/json"

	"github.com/postern-dev/postern/internal/backend"
	"github.com/postern-dev/postern/pkg/admit"
)

const (
	// questionSize bounds what a volume adds to a question. Servers refuse long addresses of requests, in which a byte
	// takes up to three.
	questionSize = 2 << 10
	// answerSize bounds the body of an answer.
	answerSize = 64 << 10
	// answerCount and entrySize bound the cache to 16 MiB. Users choose the handle of
	// a volume, which is in the key, and the endpoint chooses the labels.
	answerCount = 4096
	entrySize   = 4 << 10
	// longest is the longest timeout of a webhook in the API server.
	longest = 30 * time.Second
)

// endpointConfig configures an HTTP server that knows the place of volumes.
type endpointConfig struct {
	URL string `json:"url"`
	// CAFile holds the CA certificates that verify the server. If it is unset, the CAs of the system are
	// used.
	CAFile    string `json:"caFile"`
	TokenFile string `json:"tokenFile"`
	// The durations have Go's format: 500ms, 2s, 10m.
	Timeout  string `json:"timeout"`
	TTL      string `json:"ttl"`
	EmptyTTL string `json:"emptyTTL"`
	// OnError is Fail or Ignore.
	OnError string `json:"onError"`
}

// errQuestion means that the endpoint does not accept the question. The creator of the volume chose what is in it, so this is
// the reason of a denial, and OnError does not apply.
var errQuestion = errors.New("the endpoint does not accept the handle, the name or the driver of the volume")

// endpoint asks the server and caches its answers.
type endpoint struct {
	url           *url.URL
	client        *http.Client
	timeout       time.Duration
	ttl, emptyTTL time.Duration
	ignore        bool
	answers       *cache.LRUExpireCache
}

func newEndpoint(c endpointConfig, clock clock.PassiveClock) (*endpoint, error) {
	e := &endpoint{ignore: c.OnError == "Ignore", answers: cache.NewLRUExpireCacheWithClock(answerCount, clock)}
	var err error
	if e.url, err = c.parseURL(); err != nil {
		return nil, err
	}
	if e.client, err = c.client(); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		field, text, otherwise string
		least, most            time.Duration
		into                   *time.Duration
	}{
		{"timeout", c.Timeout, "2s", time.Millisecond, longest, &e.timeout},
		{"ttl", c.TTL, "10m", 0, 24 * time.Hour, &e.ttl},
		{"emptyTTL", c.EmptyTTL, "30s", 0, 24 * time.Hour, &e.emptyTTL},
	} {
		if *d.into, err = time.ParseDuration(cmp.Or(d.text, d.otherwise)); err != nil || *d.into < d.least || *d.into > d.most {
			return nil, admit.InvalidField(d.field, "got %q, want a duration such as %s, from %s to %s", d.text, d.otherwise, d.least, d.most)
		}
	}
	if c.OnError != "" && c.OnError != "Fail" && c.OnError != "Ignore" {
		return nil, admit.InvalidField("onError", "got %q, want Fail or Ignore", c.OnError)
	}
	return e, nil
}

func (c *endpointConfig) parseURL() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, admit.InvalidField("url", "%w", err)
	case (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.Fragment != "":
		return nil, admit.InvalidField("url", "got %q, want https://host/path", c.URL)
	case u.User != nil:
		return nil, admit.InvalidField("url", "it has a user in it; put a token into tokenFile")
	case u.Scheme == "http" && c.TokenFile != "":
		return nil, admit.InvalidField("tokenFile", "everybody on the way could read the token, want an https URL")
	case u.Scheme == "http" && c.CAFile != "":
		return nil, admit.InvalidField("caFile", "there is no certificate to check, want an https URL")
	}
	return u, nil
}

func (c *endpointConfig) client() (*http.Client, error) {
	if err := backend.CheckCA(c.CAFile); err != nil {
		return nil, admit.InvalidField("caFile", "%w", err)
	}
	if _, err := backend.ReadToken(c.TokenFile); err != nil {
		return nil, admit.InvalidField("tokenFile", "%w", err)
	}
	config := &rest.Config{Host: c.URL, BearerTokenFile: c.TokenFile, TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile}}
	return backend.NewClient(config, backend.Limit{Bytes: answerSize})
}

// labels returns the labels that the endpoint gives a volume, or nil if it knows none.
func (e *endpoint) labels(ctx context.Context, r *admit.Request, id identity) (map[string]string, error) {
	if found, ok := e.answers.Get(id); ok {
		labels, _ := found.(map[string]string)
		return labels, nil
	}
	short := !backend.HasTime(ctx, e.timeout)
	labels, err := e.ask(ctx, id)
	switch {
	case errors.Is(err, errQuestion):
		klog.FromContext(ctx).Error(err, "The endpoint of labels accepted no question about a volume, so it is denied", "volumeHandle", id.handle)
		return nil, admit.Forbidden(r, fmt.Errorf("looking up the labels of volume %q: %w", id.handle, err))
	case err != nil && e.ignore && ctx.Err() == nil && (!short || !backend.TimedOut(err)):
		klog.FromContext(ctx).Error(err, "The endpoint of labels failed, so a volume has none", "volumeHandle", id.handle)
		r.Warn("the zone and the region of the volume could not be looked up, so it has no labels for them")
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking up the labels of volume %q: %w", id.handle, err)
	}
	ttl := e.ttl
	if labels == nil {
		ttl = e.emptyTTL
	}
	if ttl > 0 && sizeOf(id, labels) <= entrySize {
		e.answers.Add(id, labels, ttl)
	}
	return labels, nil
}

// sizeOf returns the size in bytes of a cache entry.
func sizeOf(id identity, labels map[string]string) int {
	size := id.size()
	for key, value := range labels {
		size += len(key) + len(value)
	}
	return size
}

func (e *endpoint) ask(ctx context.Context, id identity) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	req, err := e.question(ctx, id)
	if err != nil {
		return nil, err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the endpoint: %w", backend.WithoutURL(err))
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return answerIn(resp.Body)
	case http.StatusNoContent, http.StatusNotFound:
		return nil, nil
	case http.StatusBadRequest, http.StatusRequestURITooLong, http.StatusUnprocessableEntity, http.StatusRequestHeaderFieldsTooLarge:
		return nil, fmt.Errorf("%w: it answers %d", errQuestion, resp.StatusCode)
	}
	return nil, fmt.Errorf("the endpoint answers %d, want 200, 204 or 404", resp.StatusCode)
}

func (e *endpoint) question(ctx context.Context, id identity) (*http.Request, error) {
	u := *e.url
	query := u.Query()
	for key, value := range map[string]string{"type": id.kind, "driver": id.driver, "handle": id.handle, "name": id.name} {
		query.Del(key)
		if value != "" {
			query.Set(key, value)
		}
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("making the question: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	return req, nil
}

// answerIn decodes an answer. Unknown content is an error, so that a mistake of the endpoint is not mistaken
// for a volume without a place.
func answerIn(body io.Reader) (map[string]string, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of the endpoint: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	var at place
	strict, err := kjson.UnmarshalStrict(data, &at)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("decoding the answer of the endpoint: %w", err)
	}
	labels, err := at.labels()
	if err != nil {
		return nil, fmt.Errorf("the answer of the endpoint: %w", err)
	}
	return labels, nil
}
