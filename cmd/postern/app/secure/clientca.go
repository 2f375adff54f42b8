package secure

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// ClientCAAge is how long the content of --client-ca-file is cached.
const ClientCAAge = 10 * time.Second

// ClientCA verifies the certificates of clients against a CA file. It reads the file
// again while it serves.
type ClientCA struct {
	file   string
	age    time.Duration
	clock  clock.PassiveClock
	logger klog.Logger

	mu   sync.Mutex
	pem  []byte
	pool *x509.CertPool
	read time.Time
}

// NewClientCA reads the CA in a file. It reads the file again when its content is older than age. The clock tells whether the
// certificate of a client is valid.
func NewClientCA(file string, age time.Duration, now clock.PassiveClock, logger klog.Logger) (*ClientCA, error) {
	c := &ClientCA{file: file, age: age, clock: now, logger: logger}
	return c, c.load()
}

func (c *ClientCA) load() error {
	c.read = time.Now()
	pem, err := os.ReadFile(c.file)
	if err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	if c.pool != nil && bytes.Equal(pem, c.pem) {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("--client-ca-file: %s holds no certificate", c.file)
	}
	if c.pool != nil {
		c.logger.Info("Client CA changed", "file", c.file)
	}
	c.pem, c.pool = pem, pool
	return nil
}

// current returns the certificates in the file. If the file is broken, it returns the
// certificates that it read before.
func (c *ClientCA) current() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) >= c.age {
		if err := c.load(); err != nil {
			c.logger.Error(err, "Client CA not reloaded, the last one counts")
		}
	}
	return c.pool
}

// Verify is the VerifyPeerCertificate of a tls.Config. It fails a handshake with a client whose certificate is not signed by the CA. The
// handler decides whether a client needs a certificate: the kubelet has none. VerifyConnection would be later: crypto/tls first waits for
// another message of the client, and keeps certificates that take 80 times their size of memory.
func (c *ClientCA) Verify(raw [][]byte, _ [][]*x509.Certificate) error {
	if len(raw) == 0 {
		return nil
	}
	leaf, err := x509.ParseCertificate(raw[0])
	if err != nil {
		return err
	}
	intermediates := x509.NewCertPool()
	for _, der := range raw[1:] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		intermediates.AddCert(cert)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: c.current(), Intermediates: intermediates, CurrentTime: c.clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// HasName reports whether the common name or a DNS name of a client's certificate is in
// names. An empty list matches every name.
func HasName(state *tls.ConnectionState, names []string) bool {
	leaf := state.PeerCertificates[0]
	return len(names) == 0 || slices.Contains(names, leaf.Subject.CommonName) ||
		slices.ContainsFunc(leaf.DNSNames, func(name string) bool { return slices.Contains(names, name) })
}
