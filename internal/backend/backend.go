// Package backend connects plugins to servers of the administrator: it reads kubeconfigs, certificates and tokens, limits
// answers, and knows which errors a user can cause.
package backend

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Limit bounds the body of an answer. An answer that repeats its question may have more bytes for each byte that was sent.
type Limit struct{ Bytes, PerByteSent int64 }

// Kubeconfig returns how to connect to the server in a kubeconfig. A relative path in a kubeconfig is relative to its folder.
// Kubeconfig does not fall back to the API server of the pod.
func Kubeconfig(file string) (*rest.Config, error) {
	raw, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}).Load()
	if err != nil {
		return nil, err
	}
	return clientcmd.NewNonInteractiveClientConfig(*raw, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
}

// NewClient returns a client of a server, for clients of client-go and for net/http. NewClient reads all files of the
// configuration, so that a mistake stops the start, but does not connect. Files are read again: a token for each request, a
// client certificate for each connection, and at least every five minutes, like the CA certificates.
//
// The client returns a redirect as it is, because following it would send the credentials to another server. It fails to read
// a larger answer than the limit.
func NewClient(config *rest.Config, limit Limit) (*http.Client, error) {
	config = rest.CopyConfig(config)
	if err := CheckCA(config.CAFile); err != nil {
		return nil, err
	}
	if err := checkCertificate(config.CertFile, config.KeyFile); err != nil {
		return nil, err
	}
	tokenFile := config.BearerTokenFile
	if _, err := ReadToken(tokenFile); err != nil {
		return nil, err
	}
	if tokenFile != "" {
		// client-go reads it once a minute.
		config.BearerToken, config.BearerTokenFile = "", ""
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next, tokenFile, limit} })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}

// CheckCA reads a file of CA certificates, if there is one.
func CheckCA(file string) error {
	if file == "" {
		return nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return fmt.Errorf("there is no certificate in %s", file)
	}
	return nil
}

// ReadToken returns the token in a file, or "" without a file.
func ReadToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, "\r\n") {
		return "", fmt.Errorf("reading the token: want one line in %s", file)
	}
	return token, nil
}

func checkCertificate(certFile, keyFile string) error {
	if (certFile == "") != (keyFile == "") {
		return errors.New("a client certificate needs a certificate and a key")
	}
	if certFile == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		return fmt.Errorf("client certificate %s with key %s: %w", certFile, keyFile, err)
	}
	return nil
}

// WithoutURL removes the URL of the server from an error of a client, for errors that users see.
func WithoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// transport adds the token to requests, and limits the body of answers.
type transport struct {
	next      http.RoundTripper
	tokenFile string
	limit     Limit
}

const retryAfter = "Retry-After"

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := ReadToken(t.tokenFile)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	// client-go repeats such a request without a pause, or does not see the header.
	if resp.Header.Get(retryAfter) == "0" {
		resp.Header.Set(retryAfter, "1")
	}
	most := t.limit.Bytes + t.limit.PerByteSent*max(req.ContentLength, 0)
	resp.Body = &limitedBody{resp.Body, most, most}
	return resp, nil
}

// limitedBody fails if the body has more than most bytes.
type limitedBody struct {
	io.ReadCloser
	most, left int64
}

func (l *limitedBody) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("the answer is too large: it has more than %d bytes", l.most)
	}
	return n, err
}
