package app

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/postern-dev/postern/pkg/admissions"
)

// TestFailureEndsTheProcess closes the secure port of a process that also serves health. The process must
// exit.
func TestFailureEndsTheProcess(t *testing.T) {
	p := prepared(t, "--admission-control=AlwaysPullImages")
	var err error
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

// prepared returns a process with flags, whose API server has no answers.
func prepared(t *testing.T, args ...string) *process {
	t.Helper()
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
	args = append([]string{"--kubeconfig=" + kubeconfig, "--cert-dir=" + t.TempDir(), "--webhook-url=https://127.0.0.1:1"}, args...)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	p, err := o.prepare()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSettingsWithoutEffectAreLogged covers a managed cluster, whose API server runs the plugins that are on by default.
func TestSettingsWithoutEffectAreLogged(t *testing.T) {
	const seconds = "--default-not-ready-toleration-seconds"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a plugin that is not enabled": {
			[]string{"--enable-admission-plugins=AlwaysPullImages", seconds + "=30"},
			seconds + " has no effect: DefaultTolerationSeconds is not enabled",
		},
		"a plugin that the API server runs": {
			[]string{"--enable-admission-plugins=DefaultTolerationSeconds", seconds + "=30"},
			"DefaultTolerationSeconds: " + seconds + " has no effect without replaceInTreeDefault in the configuration, because the API server's own plugin sets the seconds first",
		},
		"a plugin that only Postern runs": {
			args: []string{"--enable-admission-plugins=DefaultTolerationSeconds", seconds + "=30", "--api-server-plugins=none", "--disable-admission-plugins=PodSecurity"},
		},
		"a flag with the value that it has anyway": {args: []string{"--enable-admission-plugins=AlwaysPullImages", seconds + "=300"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := prepared(t, c.args...)
			var log strings.Builder
			config := textlogger.NewConfig(textlogger.Output(&log))
			p.announce(klog.NewContext(t.Context(), textlogger.NewLogger(config)))
			_, got, _ := strings.Cut(log.String(), `"Warning" message=`)
			if got != "" {
				var err error
				if got, err = strconv.Unquote(strings.TrimSpace(got)); err != nil {
					t.Fatalf("The log has more than one warning:\n%s", log.String())
				}
			}
			if got != c.want {
				t.Errorf("Got the warning %q, want %q, in the log\n%s", got, c.want, log.String())
			}
		})
	}
}
