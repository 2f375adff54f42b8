package controlplane_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/test/controlplane"
)

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := controlplane.StartForTest(t, controlplane.Options{Dir: dir})
	if got := serversIn(t, dir); len(got) != 2 {
		t.Errorf("Running: %q, want etcd and kube-apiserver", got)
	}
	if err := c.Stop(); err != nil {
		t.Errorf("Stopping: %v", err)
	}
	if got := serversIn(t, dir); len(got) != 0 {
		t.Errorf("Still running after Stop: %q", got)
	}
	if err := c.Stop(); err != nil {
		t.Errorf("Stopping again: %v", err)
	}
}

func TestTemporaryFolderIsRemoved(t *testing.T) {
	t.Parallel()
	c := controlplane.StartForTest(t, controlplane.Options{})
	dir := filepath.Dir(c.CAFile())
	if err := c.Stop(); err != nil {
		t.Errorf("Stopping: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("The folder %s is still there: %v", dir, err)
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	c := controlplane.StartForTest(t, controlplane.Options{})
	for _, test := range []struct {
		user   controlplane.User
		verb   []string
		wanted bool
	}{
		{controlplane.Admin, []string{"create", "namespace", "by-kubectl"}, true},
		{controlplane.Alice, []string{"create", "namespace", "by-kubectl-too"}, false},
		{controlplane.Alice, []string{"auth", "whoami"}, true},
		{controlplane.Node, []string{"create", "namespace", "by-kubectl-too"}, false},
		{controlplane.Node, []string{"get", "services", "--all-namespaces"}, true},
	} {
		out, err := c.Kubectl(t.Context(), test.user, test.verb...).CombinedOutput()
		if got := err == nil; got != test.wanted {
			t.Errorf("As %s, kubectl %q worked: %t, want %t; it said: %s", test.user, test.verb, got, test.wanted, out)
		}
	}
	for user, want := range map[controlplane.User]int{
		controlplane.Admin: http.StatusCreated, controlplane.Alice: http.StatusForbidden, controlplane.Node: http.StatusForbidden,
	} {
		got := create(t, c, user, "/api/v1/namespaces", `{"metadata": {"name": "by-http"}}`)
		if got != want {
			t.Errorf("As %s, creating a namespace returned %d, want %d", user, got, want)
		}
	}
}

// TestPodsWithoutControllerManager also shows that a list of disabled plugins does not enable ServiceAccount.
// Without the controller manager nothing creates service accounts.
func TestPodsWithoutControllerManager(t *testing.T) {
	t.Parallel()
	c := controlplane.StartForTest(t, controlplane.Options{
		APIServerFlags: []string{"--disable-admission-plugins=LimitRanger"},
	})
	if got := create(t, c, controlplane.Admin, "/api/v1/namespaces/default/pods", pod); got != http.StatusCreated {
		t.Errorf("Creating a pod returned %d", got)
	}
}

func TestControllerManager(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := controlplane.StartForTest(t, controlplane.Options{Dir: dir, ControllerManager: true})
	if got := serversIn(t, dir); len(got) != 3 {
		t.Errorf("Running: %q, want three servers", got)
	}
	if got := create(t, c, controlplane.Admin, "/api/v1/namespaces/default/pods", pod); got != http.StatusCreated {
		t.Errorf("Creating a pod returned %d", got)
	}
	for _, args := range [][]string{
		{"create", "namespace", "passing"},
		// Only the namespace controller finishes the deletion of a namespace.
		{"delete", "namespace", "passing", "--timeout=1m"},
	} {
		if out, err := c.Kubectl(t.Context(), controlplane.Admin, args...).CombinedOutput(); err != nil {
			t.Errorf("kubectl %q: %v: %s", args, err, out)
		}
	}
}

func TestObjectsSurviveInAGivenFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, want := range []int{http.StatusCreated, http.StatusConflict} {
		c := controlplane.StartForTest(t, controlplane.Options{Dir: dir})
		got := create(t, c, controlplane.Admin, "/api/v1/namespaces", `{"metadata": {"name": "kept"}}`)
		if got != want {
			t.Errorf("Creating the namespace returned %d, want %d", got, want)
		}
		if err := c.Stop(); err != nil {
			t.Errorf("Stopping: %v", err)
		}
	}
}

// TestAPIServerIsStoppedAndStarted ends the process of the API server alone.
func TestAPIServerIsStoppedAndStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := controlplane.StartForTest(t, controlplane.Options{Dir: dir})
	url := c.URL()
	if err := c.StopAPIServer(); err != nil {
		t.Fatalf("Stopping: %v", err)
	}
	if got := serversIn(t, dir); len(got) != 1 || !strings.Contains(got[0], "etcd") {
		t.Errorf("Running: %q, want etcd", got)
	}
	if err := c.StopAPIServer(); err == nil {
		t.Error("An API server that does not run was stopped")
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatalf("Starting: %v", err)
	}
	if got := create(t, c, controlplane.Admin, "/api/v1/namespaces", `{"metadata": {"name": "new"}}`); got != http.StatusCreated || c.URL() != url {
		t.Errorf("Creating a namespace at %s returned %d, want %d at %s", c.URL(), got, http.StatusCreated, url)
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := controlplane.Start(t.Context(), controlplane.Options{
		Dir: dir, Progress: t.Output(), APIServerFlags: []string{"--no-such-flag"},
	})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("The error is %v, want the words of kube-apiserver", err)
	}
	if got := serversIn(t, dir); len(got) != 0 {
		t.Errorf("Still running after a failed start: %q", got)
	}
}

const pod = `{"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web"}]}}`

func create(t *testing.T, c *controlplane.ControlPlane, u controlplane.User, path, body string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.Token(u))
	request.Header.Set("Content-Type", "application/json")
	response, err := c.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// serversIn finds in /proc the processes that have the folder in their arguments.
func serversIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Skipf("There is no list of processes here: %v", err)
	}
	var servers []string
	for _, file := range files {
		// A process that has exited meanwhile has no arguments. A zombie process has none either.
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), dir+"/") {
			program, _, _ := strings.Cut(string(text), "\x00")
			servers = append(servers, fmt.Sprintf("%s (%s)", filepath.Base(program), filepath.Base(filepath.Dir(file))))
		}
	}
	return servers
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Errorf("Not in time: %s", what)
}
