package certs_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/postern-dev/postern/pkg/certs"
)

const filePoll = 5 * time.Second

// pems holds the content of the three files.
type pems struct{ bundle, cert, key []byte }

// servingPair returns the serving certificate of an Authority as externally provided files. The bundle is the
// certificate itself.
func servingPair(t *testing.T, a *certs.Authority) (bundle, cert, key []byte) {
	t.Helper()
	served, err := a.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(served.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate[0]})
	return cert, cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// issued returns a certificate that its own new CA signed.
func issued(t *testing.T, c *clocktesting.FakeClock) pems {
	t.Helper()
	a := newAuthority(t, secretStore(fake.NewClientset()), options(c))
	_, cert, key := servingPair(t, a)
	return pems{a.Bundle(), cert, key}
}

func (p pems) write(t *testing.T, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, "ca.crt"), p.bundle)
	write(t, filepath.Join(dir, "tls.crt"), p.cert)
	write(t, filepath.Join(dir, "tls.key"), p.key)
}

func newFiles(t *testing.T, dir string, c *clocktesting.FakeClock) (*certs.Files, error) {
	t.Helper()
	return certs.NewFiles(logging(t),
		filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt"), c)
}

func TestFilesAreReloaded(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	first, second := issued(t, clock), issued(t, clock)
	first.write(t, dir)
	f, err := newFiles(t, dir, clock)
	if err != nil {
		t.Fatalf("NewFiles: %v", err)
	}
	address := listen(t, f)
	logs := run(t, f, clock)
	changed := f.Changed()
	accepted := func(when string) {
		t.Helper()
		if err := shake(t.Context(), address, serverName, f.Bundle(), clock.Now()); err != nil {
			t.Errorf("Handshake %s: %v", when, err)
		}
	}
	accepted("with the first certificate")

	// The files are written one after the other, so first the key and the certificate, and then the certificate
	// and the bundle do not match for a while.
	write(t, filepath.Join(dir, "tls.key"), second.key)
	write(t, filepath.Join(dir, "tls.crt"), second.cert[:40])
	for range 3 {
		clock.Step(filePoll)
		eventually(t, "the outage is logged", func() bool { return logs.count("cannot be refreshed") > 0 })
	}
	write(t, filepath.Join(dir, "tls.crt"), second.cert)
	clock.Step(filePoll)
	if diff := cmp.Diff(string(first.bundle), string(f.Bundle())); diff != "" {
		t.Errorf("Bundle while the files do not fit (-want +got):\n%s", diff)
	}
	accepted("while the files do not fit")

	write(t, filepath.Join(dir, "ca.crt"), second.bundle)
	clock.Step(filePoll)
	<-changed
	accepted("with the second certificate")
	wantOneOutage(t, logs)
}

// Kubernetes mounts a Secret as links to files in a linked folder, and replaces the link to the folder.
func TestFilesFollowASwappedLink(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	first, second := issued(t, clock), issued(t, clock)
	for name, content := range map[string]pems{"..1": first, "..2": second} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		content.write(t, filepath.Join(dir, name))
	}
	link(t, "..1", filepath.Join(dir, "..data"))
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		link(t, filepath.Join("..data", name), filepath.Join(dir, name))
	}
	f, err := newFiles(t, dir, clock)
	if err != nil {
		t.Fatalf("NewFiles: %v", err)
	}
	run(t, f, clock)
	changed := f.Changed()

	link(t, "..2", filepath.Join(dir, "..data_tmp"))
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	clock.Step(filePoll)
	<-changed
	if diff := cmp.Diff(string(second.bundle), string(f.Bundle())); diff != "" {
		t.Errorf("Bundle (-want +got):\n%s", diff)
	}
	if got, want := leaf(t, f), parse(t, second.cert)[0]; !got.Equal(want) {
		t.Error("The certificate served is not the one that the link leads to")
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func TestFilesWithoutBundle(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	issued(t, clock).write(t, dir)
	f, err := certs.NewFiles(logging(t), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), "", clock)
	if err != nil {
		t.Fatalf("NewFiles: %v", err)
	}
	if got := f.Bundle(); len(got) != 0 {
		t.Errorf("Bundle is %q, want none", got)
	}
}

func TestExpiredFilesAreNotReady(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	issued(t, clock).write(t, dir)
	clock.Step(8 * day)
	f, err := newFiles(t, dir, clock)
	if err != nil {
		t.Fatalf("NewFiles: %v", err)
	}
	if f.Ready() == nil {
		t.Error("Ready is nil although the certificate expired")
	}
	run(t, f, clock)
	issued(t, clock).write(t, dir)
	clock.Step(filePoll)
	eventually(t, "the next certificate is served", func() bool { return f.Ready() == nil })
}

func TestBrokenFiles(t *testing.T) {
	clock := newClock()
	good, other := issued(t, clock), issued(t, clock)
	tests := map[string]struct {
		files pems
		want  string
	}{
		"no certificate":   {pems{good.bundle, nil, good.key}, "tls.crt"},
		"no key":           {pems{good.bundle, good.cert, nil}, "tls.key"},
		"another's key":    {pems{good.bundle, good.cert, other.key}, "private key does not match public key"},
		"empty bundle":     {pems{nil, good.cert, good.key}, "ca.crt: missing or empty"},
		"key in bundle":    {pems{append(bytes.Clone(good.bundle), good.key...), good.cert, good.key}, "want certificates only"},
		"another's bundle": {pems{other.bundle, good.cert, good.key}, "verifying "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			test.files.write(t, dir)
			_, err := newFiles(t, dir, clock)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Error %v, want one with %q", err, test.want)
			}
		})
	}
	if _, err := newFiles(t, t.TempDir(), clock); err == nil {
		t.Error("Files that are not there were accepted")
	}
}

// TestFilesWaitForTheirClients replaces the files with files of a CA that clients do not trust yet.
func TestFilesWaitForTheirClients(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	old, next := issued(t, clock), issued(t, clock)
	old.write(t, dir)
	f, err := newFiles(t, dir, clock)
	if err != nil {
		t.Fatal(err)
	}
	if missing := f.Held([][]byte{next.bundle}); !bytes.Equal(missing, old.bundle) || f.Ready() == nil {
		t.Errorf("Got %q missing and ready: %v, want the bundle of the files missing", missing, f.Ready())
	}
	if missing := f.Held([][]byte{old.bundle}); missing != nil || f.Ready() == nil {
		t.Errorf("Got %q missing and ready: %v, want to wait until clients have learnt of it", missing, f.Ready())
	}
	run(t, f, clock)
	clock.Step(certs.DefaultSettle)
	if err := f.Ready(); err != nil {
		t.Errorf("Ready: %v", err)
	}
	before := leaf(t, f)
	next.write(t, dir)
	both := append(bytes.Clone(next.bundle), old.bundle...)
	clock.Step(filePoll)
	eventually(t, "both CAs are published", func() bool { return bytes.Equal(f.Bundle(), both) })
	if !leaf(t, f).Equal(before) {
		t.Error("The certificate is served before clients know its CA")
	}
	f.Held([][]byte{both})
	clock.Step(certs.DefaultSettle)
	eventually(t, "the next certificate is served", func() bool { return !leaf(t, f).Equal(before) })
	if err := f.Ready(); err != nil {
		t.Errorf("Ready: %v", err)
	}
}
