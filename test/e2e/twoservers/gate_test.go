package twoservers

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/postern-dev/postern/test/e2e"
)

// gate is a proxy between a Postern and its API server. While the gate is shut, it holds back the watch events of
// namespaces, as if the API server sent them late. The gate forwards all other requests.
type gate struct {
	server *httptest.Server
	// shut is locked while the gate holds back watch events.
	shut sync.Mutex
}

func startGate(t *testing.T, c *e2e.Cluster) *gate {
	t.Helper()
	target, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	g.server = httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     c.ControlPlane.Client().Transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Path == "/api/v1/namespaces" && r.Request.URL.Query().Has("watch") {
				r.Body = gated{r.Body, g}
			}
			return nil
		},
	})
	t.Cleanup(g.server.Close)
	return g
}

// kubeconfig returns a kubeconfig with the address of the gate.
func (g *gate) kubeconfig(t *testing.T, c *e2e.Cluster) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.PosternKubeconfig(t, g.server.URL))
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.CertificateAuthority = ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// gated is the body of a watch.
type gated struct {
	io.ReadCloser
	gate *gate
}

// Read reads from the watch and returns the data once the gate is open.
func (b gated) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.gate.shut.Lock()
	defer b.gate.shut.Unlock()
	return n, err
}

// lookedUp returns how many get requests Postern has sent for namespaces with the prefix.
func lookedUp(t *testing.T, c *e2e.Cluster, prefix string) int {
	t.Helper()
	return len(c.Audit(t, func(e e2e.AuditEvent) bool {
		return e.ByPostern() && e.Verb == "get" && e.ObjectRef.Resource == "namespaces" && strings.HasPrefix(e.ObjectRef.Name, prefix)
	}))
}
