//go:build linux

package installed_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/test/controlplane/walkthrough"
	"github.com/postern-dev/postern/test/node"
	"github.com/postern-dev/postern/test/node/installed"
)

// filesDocument is the page that TestFiles executes.
const filesDocument = "docs/files.md"

// TestFiles executes the examples of docs/files.md: it writes the files of the page, runs each command, and compares what the
// commands print. The backends of the page run on the machine, and the node is its own hub.
func TestFiles(t *testing.T) {
	c := startCluster(t)
	for _, image := range []string{"test/web:1", "shop/web:1", "shop/db:1"} {
		if err := c.Push(t.Context(), image, node.File{Path: "/workload", From: c.Workload()}); err != nil {
			t.Fatal(err)
		}
	}
	c.block(t, c.readme(t)[0])
	c.installed(t)

	page := *c
	page.shell.Dir = t.TempDir()
	page.sh(t, "cp -r %[1]s/installer . && ln -s %[1]s/bin %[1]s/examples . && cp %[2]s hub-admin.kubeconfig", c.root, c.Kubeconfig())
	t.Cleanup(func() { endBackends(t, page.shell.Dir) })
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a Secret that is missing", page.missingSecret},
		{"ImagePolicyWebhook", func(t *testing.T) { t.Helper(); page.example(t, "ImagePolicyWebhook") }},
		{"DeletionGate", func(t *testing.T) { t.Helper(); page.example(t, "DeletionGate") }},
		{"FleetQuota", func(t *testing.T) { t.Helper(); page.example(t, "FleetQuota") }},
	} {
		if !t.Run(step.name, step.run) {
			t.Fatalf("The steps after %q need it.", step.name)
		}
	}
}

// blocks returns the blocks of a section of a page, with the addresses of the node in place of the page's.
func (c *cluster) blocks(t *testing.T, page, section string) []walkthrough.Block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.root, page))
	if err != nil {
		t.Fatal(err)
	}
	machine, _, err := net.SplitHostPort(c.Registry())
	if err != nil {
		t.Fatal(err)
	}
	hub, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.NewReplacer(installed.ExampleRegistry, c.Registry(), "image-policy.example.com", machine,
		"deletion-gate.example.com", machine, "hub.example.com", hub.Hostname()).Replace(string(text))
	section, err = walkthrough.Section(replaced, section)
	if err != nil {
		t.Fatal(err)
	}
	return walkthrough.Blocks(section)
}

// example executes a section of the page, in which commands are refused and others are not.
func (c *cluster) example(t *testing.T, section string) {
	t.Helper()
	if refused, admitted := c.walk(t, c.blocks(t, filesDocument, section)); refused == 0 || admitted == 0 {
		t.Errorf("The section has %d commands that are refused and %d that are not, want some of both", refused, admitted)
	}
}

// walk executes blocks of a page, and returns how many commands of the kind console are refused and how many are not. Such a command
// may find the plugin before it decides, so it is repeated until it prints what the page says.
func (c *cluster) walk(t *testing.T, blocks []walkthrough.Block) (refused, admitted int) {
	t.Helper()
	for _, b := range blocks {
		switch {
		case b.File != "":
			c.write(t, b)
		case b.Kind == "sh":
			c.block(t, b.Lines())
		case b.Kind == "console":
			for _, step := range b.Steps() {
				if strings.HasPrefix(step.Prints, "Error from server") {
					refused++
				} else {
					admitted++
				}
				c.eventually(t, step.Command, func() string { return c.prints(t, step) })
				t.Logf("As the page says: %s", step.Command)
			}
		default:
			t.Fatalf("The page has a block that nobody executes: %s", b.Text)
		}
	}
	return refused, admitted
}

func (c *cluster) write(t *testing.T, b walkthrough.Block) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.shell.Dir, b.File), []byte(b.Text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	kubectlWarning = regexp.MustCompile(`(?m)^Warning: .*$`)
	// closedFor depends on how fast the test is.
	closedFor = regexp.MustCompile(`closed for [0-9hms.]+ of`)
	// wordEllipsis is an ellipsis that is a word.
	wordEllipsis = regexp.MustCompile(`(^| )…( |$)`)
)

// prints runs a command, and returns what is wrong with its output. An ellipsis in the page stands for any text, in a word for a part
// of the word.
func (c *cluster) prints(t *testing.T, step walkthrough.Step) string {
	t.Helper()
	out, err := c.shell.Run(t.Context(), step.Command)
	plain := func(text string) string {
		return strings.Join(strings.Fields(closedFor.ReplaceAllString(kubectlWarning.ReplaceAllString(text, ""), "closed for a while of")), " ")
	}
	got, want := plain(out), plain(step.Prints)
	pattern := strings.ReplaceAll(wordEllipsis.ReplaceAllString(regexp.QuoteMeta(want), "${1}.+${2}"), "…", "[^ ]+")
	if !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
		return fmt.Sprintf("it prints\n%s\nwant\n%s", got, want)
	}
	if failed := err != nil; failed != strings.HasPrefix(step.Prints, "Error from server") {
		return fmt.Sprintf("its error is %v", err)
	}
	return ""
}

// missingSecret upgrades to the first example before its Secret exists. The new replica waits, and says why; the old ones go on.
func (c *cluster) missingSecret(t *testing.T) {
	t.Helper()
	var values walkthrough.Block
	var line string
	for _, b := range c.blocks(t, filesDocument, "ImagePolicyWebhook") {
		if b.File != "" {
			values = b
		}
		for _, command := range b.Lines() {
			if strings.HasPrefix(command, "helm upgrade ") {
				line = command
			}
		}
	}
	c.write(t, values)
	c.sh(t, "%s", strings.TrimSuffix(line, " --wait"))
	c.eventually(t, "an Event that names the Secret", func() string {
		got := c.sh(t, "kubectl -n %s get events --field-selector=reason=FailedMount -o jsonpath='{.items[*].message}'", namespace)
		if !strings.Contains(got, `secret "image-policy" not found`) {
			return "got " + got
		}
		return ""
	})
	if got := c.sh(t, "kubectl -n %s get deployment postern -o jsonpath='{.status.updatedReplicas} {.status.readyReplicas} {.status.unavailableReplicas}'", namespace); got != "1 2 1" {
		t.Errorf("The new, the ready and the unavailable replicas are %q, want that the rollout stopped at the first", got)
	}
	if problem, _ := c.create(t.Context()); problem != "" {
		t.Errorf("The old replicas do not go on: %s", problem)
	}
	c.sh(t, "helm rollback postern --namespace %s --wait", namespace)
}

// endBackends ends the backends that a failed test has left: the programs whose numbers are in the page's files.
func endBackends(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.pid"))
	if err != nil {
		t.Error(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Error(err)
			continue
		}
		// The page ends its backends, so the number may be that of another program by now.
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if name := filepath.Base(program); err != nil || name != "imagepolicy-backend" && name != "deletion-gate" {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
}
