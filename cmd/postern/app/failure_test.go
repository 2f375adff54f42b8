package app

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/pkg/admissions"
)

// TestFailureEndsTheProcess closes the secure port of a process that also serves health. The process must
// exit.
func TestFailureEndsTheProcess(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{"clusters":[{"name":"c","cluster":{"server":"`+api.URL+`"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o, flags := &options{Program: Program{Families: admissions.Families()}}, pflag.NewFlagSet("serve", pflag.ContinueOnError)
	sections, err := o.init()
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range sections.FlagSets {
		flags.AddFlagSet(section)
	}
	if err := flags.Parse([]string{"--kubeconfig=" + kubeconfig, "--cert-dir=" + t.TempDir(), "--webhook-url=https://127.0.0.1:1", "--admission-control=AlwaysPullImages"}); err != nil {
		t.Fatal(err)
	}
	p, err := o.prepare()
	if err != nil {
		t.Fatal(err)
	}
	if p.certs, err = p.authority(t.Context()); err != nil {
		t.Fatal(err)
	}
	listen := func() net.Listener {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	secure, plain := listen(), listen()
	secure.Close()
	if err := p.run(t.Context(), secure, plain); err == nil || !strings.Contains(err.Error(), "use of closed network connection") {
		t.Errorf("Got %v, want the error of the port", err)
	}
}
