package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	readyTimeout = 2 * time.Minute
	readyPeriod  = 50 * time.Millisecond
	probeTimeout = 5 * time.Second
)

// freePorts finds ports of the loopback address that are free now. Somebody else may take one before the
// server does, so the start is tried again.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for range n {
		// All are held until the last is found, or one might be found twice.
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// await repeats the probe until it succeeds, or a server exits, or the time is up.
func (c *ControlPlane) await(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the control plane: %w; last: %w; the ends of the logs:\n%s", ctx.Err(), err, c.Logs())
		case p := <-c.exited:
			return p.failure()
		case <-time.After(readyPeriod):
		}
	}
}

func (c *ControlPlane) etcdReady(ctx context.Context) error {
	return get(ctx, http.DefaultClient, c.etcdURL+"/health", "")
}

// apiServerReady also makes the client and the kubeconfigs, because before there is no certificate.
func (c *ControlPlane) apiServerReady(ctx context.Context) error {
	if c.client == nil {
		if err := c.connect(ctx); err != nil {
			return err
		}
	}
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
		if err := get(ctx, c.client, c.serverURL+path, c.tokens[Admin]); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) controllerManagerReady(ctx context.Context) error {
	return get(ctx, c.client, c.serverURL+"/api/v1/namespaces/default/serviceaccounts/default", c.tokens[Admin])
}

// connect reads the certificate that the API server made, which is complete once its port is open.
func (c *ControlPlane) connect(ctx context.Context) error {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(c.serverURL, "https://"))
	if err != nil {
		return err
	}
	if err := connection.Close(); err != nil {
		return err
	}
	authority, err := c.readAuthority()
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	c.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: true,
	}}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw})
	if err := os.WriteFile(c.CAFile(), ca, 0o600); err != nil {
		return err
	}
	return c.writeKubeconfigs(ca)
}

// readAuthority finds the authority in the API server's file, which begins with the certificate it has
// signed. That one is not to be given to anybody as an authority: Kubernetes checks bundles for this.
func (c *ControlPlane) readAuthority() (*x509.Certificate, error) {
	path := filepath.Join(c.certDir(), "apiserver.crt")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if certificate.IsCA {
			return certificate, nil
		}
	}
	return nil, fmt.Errorf("%s holds no certificate authority", path)
}

// get wants the status 200.
func get(ctx context.Context, client *http.Client, url, token string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
