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

// freePorts returns loopback ports that are free at the time of the call. Another program may take a port
// before the server does, so Start retries.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for range n {
		// All listeners stay open until the last port is found, so that all ports differ.
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// await repeats the probe until the probe succeeds, a server exits, or the time is up.
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

// apiServerReady also creates the client and the kubeconfigs. They need the API server's certificate, which
// does not exist earlier.
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

// connect reads the certificate that the API server created. The file is complete once the port is open.
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

// readAuthority returns the CA certificate from the API server's certificate file. The file begins with the
// serving certificate, which must not be in a CA bundle: Kubernetes rejects such a bundle.
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

// get sends a GET request. It returns an error unless the status is 200.
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
