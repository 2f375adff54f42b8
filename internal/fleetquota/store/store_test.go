package store_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fleetquota/store"
)

// hub writes a kubeconfig for a hub.
func hub(t *testing.T, url, user string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{apiVersion: v1, kind: Config, current-context: hub, clusters: [{name: hub, cluster: {server: "` + url + `"}}],
users: [{name: postern, user: {` + user + `}}], contexts: [{name: hub, context: {cluster: hub, user: postern}}]}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAWrongCertificateStopsTheStart has a client certificate that is none. Without a check, each cluster would notice it only when
// it needs the hub.
func TestAWrongCertificateStopsTheStart(t *testing.T) {
	file := hub(t, "https://hub.example.com", "client-certificate: kubeconfig, client-key: kubeconfig")
	if _, err := store.NewHub(file, "test"); err == nil || !strings.HasPrefix(err.Error(), "client certificate "+file) {
		t.Errorf("Got %v, want an error that names the certificate", err)
	}
}

// TestARedirectOfTheHubIsAnError must not send the credentials of the hub to another server.
func TestARedirectOfTheHubIsAnError(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("The hub's redirect was followed") }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	quotas, err := store.NewHub(hub(t, s.URL, ""), "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := quotas.List(t.Context()); err == nil {
		t.Error("Got no error")
	}
}
