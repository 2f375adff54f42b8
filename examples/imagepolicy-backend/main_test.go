package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
)

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestPolicy(t *testing.T) {
	p, err := newPolicy([]string{"registry.k8s.io", "docker.io/library", "docker.io/acme", "ghcr.io/acme", "localhost:5000"}, true, []string{"kube-system"})
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{
		"registry.k8s.io/pause" + digest:         "",
		"registry.k8s.io/pause:3.10" + digest:    "",
		"ghcr.io/acme/web" + digest:              "",
		"ghcr.io/acme" + digest:                  "",
		"docker.io/library/nginx" + digest:       "",
		"docker.io/nginx" + digest:               "",
		"nginx" + digest:                         "it does not name its registry",
		"library/nginx" + digest:                 "it does not name its registry",
		"index.docker.io/library/nginx" + digest: "it does not name its registry",
		"localhost:5000/web" + digest:            "",
		"registry.k8s.io/pause:3.10":             "it has no digest",
		"docker.io/library/nginx":                "it has no digest",
		"docker.io/other/web" + digest:           "docker.io/other/web is not on the list",
		"ghcr.io/acme-evil/web" + digest:         "ghcr.io/acme-evil/web is not on the list",
		"registry.k8s.io.evil.com/x" + digest:    "not on the list",
		"registry.k8s.io:443/x" + digest:         "not on the list",
		"evil.com/registry.k8s.io/x" + digest:    "not on the list",
		"registry.k8s.io@evil.com/x" + digest:    "invalid reference format",
		"REGISTRY.k8s.io/x" + digest:             "not on the list",
		"":                                       "invalid reference format",
		" nginx" + digest:                        "invalid reference format",
		"nginx@sha256:0123":                      "invalid reference format",
		"registry.k8s.io/../evil.com/x" + digest: "invalid reference format",
		digest[len("@sha256:"):]:                 "64-byte hexadecimal",
		strings.Repeat("x/", 400) + digest:       "invalid reference format",
		strings.Repeat("x/", 1000) + digest:      "it is too long",
	} {
		t.Run(image, func(t *testing.T) {
			status := p.review(specOf("shop", image))
			if status.Allowed != (want == "") || !strings.Contains(status.Reason, want) {
				t.Errorf("Got allowed %t, %q; want %q in it", status.Allowed, status.Reason, want)
			}
			if !p.review(specOf("kube-system", image)).Allowed {
				t.Error("The image is denied in an exempt namespace")
			}
		})
	}
	if status := p.review(specOf("shop", "docker.io/library/nginx"+digest, "evil.com/x")); status.Allowed {
		t.Error("One allowed image allows another")
	}
	if status := p.review(specOf("shop", strings.Fields(strings.Repeat("evil.com/x ", 1000))...)); len(status.Reason) > 1000 {
		t.Errorf("The reason has %d bytes", len(status.Reason))
	}
	long := []string{strings.Repeat("x", 3<<20), strings.Repeat("x/", 3<<19), "ghcr.io/acme/web@sha256:" + strings.Repeat("0", 3<<20)}
	began := time.Now()
	for _, image := range long {
		if p.review(specOf("shop", image)).Allowed {
			t.Errorf("An image of %d bytes is allowed", len(image))
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("Images of the size of the largest pod took %v", took)
	}
	if p, err := newPolicy([]string{"docker.io/library"}, false, nil); err != nil || !p.review(specOf("shop", "docker.io/library/nginx:1.29")).Allowed {
		t.Error("A tag is denied, although no digest is required")
	}
}

func specOf(namespace string, images ...string) imagepolicyv1alpha1.ImageReviewSpec {
	spec := imagepolicyv1alpha1.ImageReviewSpec{Namespace: namespace}
	for _, image := range images {
		spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	return spec
}

func TestEntriesOfTheList(t *testing.T) {
	if _, err := newPolicy([]string{"docker.io", "ghcr.io", "ghcr.io/acme/team", "localhost:5000", "10.0.0.1:80/x"}, true, nil); err != nil {
		t.Error(err)
	}
	for _, entry := range []string{"", "nginx", "library/nginx", "ghcr.io/", "ghcr.io/*", "https://ghcr.io", "ghcr.io/acme:v1", "Ghcr.io/Acme", " ghcr.io"} {
		if _, err := newPolicy([]string{entry}, true, nil); err == nil {
			t.Errorf("The entry %q is accepted", entry)
		}
	}
}

// start makes certificates and starts the backend.
func start(t *testing.T) (dir, url string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certificates")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := run(t.Context(), []string{"certificates", "--dir=" + dir, "--server=" + address}, io.Discard); err != nil {
		t.Fatal(err)
	}
	p, err := newPolicy([]string{"registry.k8s.io"}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, listener, files{dir + "/server.crt", dir + "/server.key", dir + "/ca.crt"}, p)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serving: %v", err)
		}
	})
	return dir, "https://" + address + "/review"
}

// clientFor returns a client with the certificates of a folder.
func clientFor(t *testing.T, dir string, withCertificate bool) *http.Client {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(ca)
	if withCertificate {
		cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestServer(t *testing.T) {
	dir, url := start(t)
	client := clientFor(t, dir, true)
	for name, tc := range map[string]struct {
		body string
		code int
		want bool
	}{
		"allowed":         {`{"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "spec": {"containers": [{"image": "registry.k8s.io/pause` + digest + `"}]}}`, 200, true},
		"denied":          {`{"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "spec": {"containers": [{"image": "pause"}]}, "status": {"allowed": true}}`, 200, false},
		"another kind":    {`{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}`, 400, false},
		"another version": {`{"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1"}`, 400, false},
		"no JSON":         {`images`, 400, false},
		"too large":       {`{"kind": "` + strings.Repeat("x", maxReview) + `"}`, 400, false},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := client.Post(url, "application/json", bytes.NewBufferString(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var review imagepolicyv1alpha1.ImageReview
			if resp.StatusCode == http.StatusOK {
				if err := json.NewDecoder(resp.Body).Decode(&review); err != nil {
					t.Fatal(err)
				}
			}
			if resp.StatusCode != tc.code || review.Status.Allowed != tc.want {
				t.Errorf("Got %d and %+v, want %d and allowed %t", resp.StatusCode, review.Status, tc.code, tc.want)
			}
		})
	}
}

// TestClients requires a certificate of the CA.
func TestClients(t *testing.T) {
	dir, url := start(t)
	other, _ := start(t)
	if _, err := clientFor(t, dir, false).Post(url, "application/json", nil); err == nil {
		t.Error("A client without a certificate got an answer")
	}
	stranger := clientFor(t, other, true)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	stranger.Transport.(*http.Transport).TLSClientConfig.RootCAs.AppendCertsFromPEM(ca)
	if _, err := stranger.Post(url, "application/json", nil); err == nil {
		t.Error("A client of another CA got an answer")
	}
}

// TestFiles requires that nobody else can read the keys.
func TestFiles(t *testing.T) {
	dir, _ := start(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 6 {
		t.Errorf("Got %d files, want 6", len(entries))
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v", entry.Name(), info.Mode())
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"review"},
		{"certificates"},
		{"serve", "--allow=nginx"},
		{"serve", "--address=nowhere"},
		{"serve", "--address=127.0.0.1:0", "--dir=/no/such/folder"},
		{"serve", "--no-such-flag"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q succeeded", args)
		}
	}
}
