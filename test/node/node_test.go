//go:build linux

package node_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/test/node"
)

// patience bounds a test that would otherwise hang. The tests do not measure this time.
const patience = 2 * time.Minute

// endVariable tells this program to start a node in the folder of folderVariable, and how to end then.
const (
	endVariable    = "NODE_TEST_END"
	folderVariable = "NODE_TEST_FOLDER"
)

func TestMain(m *testing.M) {
	if code, child := node.Child(); child {
		os.Exit(code)
	}
	if end := os.Getenv(endVariable); end != "" {
		_, err := node.Start(context.Background(), node.Options{Dir: os.Getenv(folderVariable)})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("started")
		if end == "panic" {
			panic("a test that panics")
		}
		select {}
	}
	os.Exit(m.Run())
}

func TestPodsRun(t *testing.T) {
	n := node.StartForTest(t)
	if err := n.Push(t.Context(), "test/web:1", node.File{Path: "/bin/workload", From: n.Workload()}); err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := n.Kubectl(t.Context(), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	kubectl("run", "web", "--image=registry.example.com/test/web:1", "--", "log", "hello")
	kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	if got := kubectl("logs", "web"); got != "hello" {
		t.Errorf("The log is %q, want hello", got)
	}
	if got := kubectl("exec", "web", "--", "/bin/workload", "echo", "hi"); got != "hi" {
		t.Errorf("exec printed %q, want hi", got)
	}
	cmd, err := n.Exec(t.Context(), "hostname")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); strings.TrimSpace(string(out)) != node.NodeName {
		t.Errorf("The node's name is %q, %v", out, err)
	}
}

// TestNothingIsLeft ends the program that started a node in several ways.
func TestNothingIsLeft(t *testing.T) {
	if missing := node.Missing(t.Context()); len(missing) > 0 {
		t.Skipf("A node cannot run here: %s", strings.Join(missing, "; "))
	}
	for _, tc := range []struct {
		name   string
		signal syscall.Signal // 0 if it ends by itself
		keeper bool           // the signal is for the keeper
	}{
		{name: "panic"},
		{name: "terminated", signal: syscall.SIGTERM},
		{name: "killed", signal: syscall.SIGKILL},
		{name: "keeper killed", signal: syscall.SIGKILL, keeper: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := machine(t)
			dir := filepath.Join(t.TempDir(), "node")
			var said bytes.Buffer
			starter := exec.CommandContext(t.Context(), "/proc/self/exe")
			starter.Env = append(os.Environ(), endVariable+"="+tc.name, folderVariable+"="+dir)
			starter.Stderr = &said
			output, err := starter.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := starter.Start(); err != nil {
				t.Fatal(err)
			}
			line := make([]byte, len("started\n"))
			if _, err := io.ReadFull(output, line); err != nil {
				t.Fatalf("It did not start a node: %v: %s", err, said.String())
			}
			keeper := number(t, filepath.Join(dir, "keeper.pid"))
			if got := cgroups(t, keeper); len(got) == 0 {
				t.Error("The node has no cgroups.")
			}
			victim := starter.Process.Pid
			if tc.keeper {
				victim = keeper
			}
			if tc.signal != 0 {
				if err := syscall.Kill(victim, tc.signal); err != nil {
					t.Fatal(err)
				}
			}
			if tc.keeper {
				wait(t, "the keeper to end", func() bool { return !alive(keeper) })
				if err := node.Down(dir); err != nil {
					t.Errorf("Removing what a killed keeper left: %v", err)
				}
				_ = starter.Process.Kill()
			}
			_ = starter.Wait()
			wait(t, "the keeper to end", func() bool { return !alive(keeper) })
			wait(t, "the processes to end", func() bool { return len(processes(t, dir)) == 0 })
			if got := cgroups(t, keeper); len(got) > 0 {
				t.Errorf("These cgroups are left: %q", got)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "logs" {
				t.Errorf("The folder contains %v, %v; want only the logs", entries, err)
			}
			wait(t, "the network to vanish", func() bool { return machine(t) == before })
		})
	}
}

// machine is what a node could change on this machine: mounts, sysctls and network interfaces.
func machine(t *testing.T) string {
	t.Helper()
	var all []string
	for _, path := range []string{"/proc/self/mountinfo", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sys/net/ipv4/ip_forward"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		all = append(all, link.Name())
	}
	return strings.Join(all, "\n")
}

// processes returns the command lines that contain a folder.
func processes(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		if line, _ := os.ReadFile(path); bytes.Contains(line, []byte(dir)) {
			found = append(found, string(line))
		}
	}
	return found
}

func cgroups(t *testing.T, keeper int) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == fmt.Sprintf("postern-node-%d", keeper) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func number(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// alive reports whether a process runs. A process that has ended exists until its parent asks for its result.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("Waited too long for %s", what)
		}
	}
}
