package app_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/postern-dev/postern/cmd/postern/app"
	"github.com/postern-dev/postern/pkg/admissions"
)

// output is a buffer that is safe for concurrent use.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// runApp runs a command line. Its log goes to stderr, as in a process.
func runApp(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errOut output
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&errOut)))
	code = app.Program{Families: admissions.Families()}.Run(klog.NewContext(ctx, logger), args, &out, &errOut)
	return code, out.String(), errOut.String()
}

// kubeconfig writes a kubeconfig for an API server and returns its path.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	return file(t, "kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`, url))
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// freePort returns an unused port.
func freePort(t *testing.T) string {
	t.Helper()
	l, port := taken(t)
	l.Close()
	return port
}

func taken(t *testing.T) (l net.Listener, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return l, port
}

var logLine = regexp.MustCompile(`^[IWE]\d{4} `)

func TestNoClusterIsWaitedForAndToldOf(t *testing.T) {
	for _, command := range [][]string{
		{"--allow-no-plugins", "--bind-address=127.0.0.1", "--health-bind-address=", "--secure-port=" + freePort(t), "--cert-dir=" + t.TempDir(), "--webhook-url=https://127.0.0.1:1"},
		{"uninstall"},
	} {
		args := append(command, "--startup-timeout=2s", "--kubeconfig="+kubeconfig(t, "http://127.0.0.1:"+freePort(t)))
		code, _, stderr := runApp(t.Context(), args...)
		var lines []string
		for line := range strings.Lines(stderr) {
			if !logLine.MatchString(line) {
				lines = append(lines, line)
			}
		}
		if code != 2 || len(lines) != 1 || !strings.Contains(lines[0], "no cluster reachable within 2s: ") || !strings.Contains(lines[0], "connection refused") {
			t.Errorf("%v: got code %d and the lines %q, want code 2 and one line", command, code, lines)
		}
		if !strings.Contains(stderr, "Waiting for the API server") {
			t.Errorf("%v: got %s, want a message about the waiting", command, stderr)
		}
	}
}

// TestRefusedByTheCluster wants an error that names the kubeconfig. It has no credentials.
func TestRefusedByTheCluster(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) }))
	defer api.Close()
	for _, command := range [][]string{
		{"--allow-no-plugins", "--bind-address=127.0.0.1", "--health-bind-address=", "--secure-port=" + freePort(t), "--cert-dir=" + t.TempDir(), "--webhook-url=https://127.0.0.1:1"},
		{"uninstall"},
		{"rotate-ca"},
	} {
		path := kubeconfig(t, api.URL)
		code, _, stderr := runApp(t.Context(), append(command, "--startup-timeout=1s", "--kubeconfig="+path)...)
		if want := "postern: the API server refuses requests without credentials, and the kubeconfig " + path + " has no credentials"; code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%v: got code %d and %s, want 2 and %q", command, code, stderr, want)
		}
	}
}

// TestClusterThatHangs uses a server that accepts connections and never answers.
func TestClusterThatHangs(t *testing.T) {
	l, port := taken(t)
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	code, _, stderr := runApp(t.Context(), "--allow-no-plugins", "--bind-address=127.0.0.1", "--health-bind-address=", "--secure-port="+freePort(t),
		"--webhook-url=https://127.0.0.1:1", "--startup-timeout=1s", "--kubeconfig="+kubeconfig(t, "http://127.0.0.1:"+port))
	if code != 2 || !strings.Contains(stderr, "no cluster reachable within 1s: ") {
		t.Errorf("Got code %d and %s, want code 2", code, stderr)
	}
}

func TestStoppedWhileWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, stderr := runApp(ctx, "--allow-no-plugins", "--bind-address=127.0.0.1", "--health-bind-address=", "--secure-port="+freePort(t), "--kubeconfig="+kubeconfig(t, "http://127.0.0.1:"+freePort(t)))
	if code != 2 || !strings.Contains(stderr, "stopped while waiting for the API server") {
		t.Errorf("Got code %d and %s, want code 2", code, stderr)
	}
}

func TestVersionAndHelp(t *testing.T) {
	for arg, want := range map[string]string{"version": "postern ", "--help": "AlwaysPullImages", "serve --help": "--enable-admission-plugins", "uninstall --help": "webhook configurations"} {
		code, stdout, stderr := runApp(t.Context(), strings.Fields(arg)...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("%s: got code %d, stderr %q and stdout %s, want %q", arg, code, stderr, stdout, want)
		}
	}
}

// TestHelpIsInSections checks that the help lists each plugin once, and every flag in a section.
func TestHelpIsInSections(t *testing.T) {
	_, stdout, _ := runApp(t.Context(), "--help")
	for _, section := range []string{"Generic", "Admission", "Secure serving", "Certificate", "Registration", "Limit", "Health and metrics", "Log"} {
		if !strings.Contains(stdout, "\n"+section+" flags:\n") {
			t.Errorf("Got no section %s in %s", section, stdout)
		}
	}
	for _, want := range []string{"AlwaysPullImages,", "\n      --kubeconfig ", "\n  uninstall ", "\n  rotate-ca "} {
		if strings.Count(stdout, want) != 1 {
			t.Errorf("Got %q %d times, want it once", want, strings.Count(stdout, want))
		}
	}
}
