package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/internal/ring"
	"github.com/postern-dev/postern/test/controlplane"
	"github.com/postern-dev/postern/test/controlplane/walkthrough"
	"github.com/postern-dev/postern/test/e2e"
)

var closedTime = regexp.MustCompile(`closed for [0-9ms]+ of`)

// TestDeletionGateDocument executes docs/deletion-gate.md: it writes the files in the document, runs each command until it
// prints what the document says, and starts Postern with the documented configuration. The times of refusals differ.
func TestDeletionGateDocument(t *testing.T) {
	ring.Second(t, "the times in the document add up to a minute")
	t.Parallel()
	c := suite.Lend(t)
	w := newWorld(t, c)
	w.runKubelet(t, "shop")
	dir := t.TempDir()
	doc := strings.NewReplacer("/tmp/deletion-gate", dir, "8445", strconv.Itoa(e2e.FreePort(t))).Replace(page(t, c, "deletion-gate.md"))
	doc = strings.ReplaceAll(doc, "examples/deletion-gate -o", filepath.Join(c.Module(), "examples", "deletion-gate")+" -o")
	t.Cleanup(func() { endBackend(t, filepath.Join(dir, "backend.pid")) })
	commands := 0
	for _, b := range walkthrough.Blocks(doc) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(b.Text, "# "), "\n")
		if b.File != "" || b.Kind == "sh" {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(rest), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if b.File == "admission.yaml" {
			c.StartPostern(t, e2e.Options{Plugins: []string{"DeletionGate"}, Flags: []string{"--admission-control-config-file=" + filepath.Join(dir, b.File)}})
		}
		if b.Kind != "console" {
			continue
		}
		for _, step := range b.Steps() {
			commands++
			repeatUntil(t, c, dir, step.Command, step.Prints)
			if strings.HasPrefix(step.Command, "kubectl create namespace") {
				w.awaitRefusal(t, "shop")
			}
		}
	}
	if commands < 25 {
		t.Errorf("The document has %d commands", commands)
	}
}

// refusal matches what kubectl prints if the API server refuses a request.
var refusal = regexp.MustCompile(`(?m)Error from server|^error: `)

// repeatUntil runs a command until it prints what the document says: webhooks and permissions have their effect a moment after they
// are made.
func repeatUntil(t *testing.T, c *e2e.Cluster, dir, command, want string) {
	t.Helper()
	normal := func(text string) string { return closedTime.ReplaceAllString(words(text), "closed for TIME of") }
	first := ""
	e2e.Eventually(t, gateBound, command, func(context.Context) error {
		got, err := c.Shell(t, dir, command)
		if first == "" {
			first = got
		}
		if normal(got) != normal(want) {
			return fmt.Errorf("it prints first\n%s\nand then\n%s\nwant\n%s", first, got, want)
		}
		if refused := refusal.MatchString(want); refused != (err != nil) {
			return fmt.Errorf("got %w, want an error: %t", err, refused)
		}
		return nil
	})
}

// awaitRefusal waits until the API server calls Postern for the namespace.
func (w *world) awaitRefusal(t *testing.T, namespace string) {
	t.Helper()
	w.awaitServiceAccountOf(t, namespace)
	w.letAliceEditIn(t, namespace)
	alice := w.Client(t, controlplane.Alice)
	e2e.Eventually(t, settleBound, "the API server calls Postern", func(ctx context.Context) error {
		p := pod("called")
		p.Annotations = map[string]string{"deletion.postern.dev/waiting": "forged"}
		if _, err := alice.CoreV1().Pods(namespace).Create(ctx, p, dryRun()); err == nil || !strings.Contains(err.Error(), "belongs to Postern") {
			return fmt.Errorf("it does not: %w", err)
		}
		return nil
	})
}

// awaitServiceAccountOf waits until pods can be created in a namespace.
func (w *world) awaitServiceAccountOf(t *testing.T, namespace string) {
	t.Helper()
	e2e.Eventually(t, settleBound, "pods can be created", func(ctx context.Context) error {
		_, err := w.Admin.CoreV1().Pods(namespace).Create(ctx, pod("first"), dryRun())
		return err
	})
}

// endBackend ends the backend of a document whose last command did not run.
func endBackend(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Errorf("Reading the process of the backend: %v", err)
		return
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
}
