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

// gate stands between a Postern and its API server. While it is shut, no news of namespaces come through, as
// if the API server were slow to tell. Whatever Postern asks for is answered.
type gate struct {
	server *httptest.Server
	// shut is held while no news come through.
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

// kubeconfig is one by which Postern goes through the gate.
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

// Read waits with what it has read.
func (b gated) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.gate.shut.Lock()
	defer b.gate.shut.Unlock()
	return n, err
}

// lookedUp is how many namespaces with the prefix Postern has asked for by name.
func lookedUp(t *testing.T, c *e2e.Cluster, prefix string) int {
	t.Helper()
	return len(c.Audit(t, func(e e2e.AuditEvent) bool {
		return e.ByPostern() && e.Verb == "get" && e.ObjectRef.Resource == "namespaces" && strings.HasPrefix(e.ObjectRef.Name, prefix)
	}))
}
