package main

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"pass","Package":"p","Test":"TestFast","Elapsed":0.5}
{"Action":"pass","Package":"p","Test":"TestAll/first","Elapsed":20}
{"Action":"pass","Package":"p","Test":"TestAll/slow","Elapsed":21.5}
{"Action":"pass","Package":"p","Test":"TestAll","Elapsed":41.5}
{"Action":"fail","Package":"p","Test":"TestShaky","Elapsed":1}
{"Action":"fail","Package":"p","Test":"TestBroken","Elapsed":2}
{"Action":"skip","Package":"p","Test":"TestLeftOut","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":25}
{"Action":"pass","Package":"p","Test":"TestShaky","Elapsed":1}
{"Action":"pass","Package":"p","Elapsed":1}
{"Action":"fail","Package":"p","Test":"TestBroken","Elapsed":2}
{"Action":"fail","Package":"p","Elapsed":2}
`

// recorded returns the tests of a run with the events, in two attempts.
func recorded(t *testing.T) (times, tests) {
	t.Helper()
	files := timesIn(t.TempDir())
	for range 2 {
		if err := files.record("p", 1500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(files.folder, "unit-root.json"), []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := files.read([]string{"unit", "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	return files, all
}

func TestTable(t *testing.T) {
	files, all := recorded(t)
	if err := write(files.table, []part{{name: "unit", wall: 90 * time.Second, cpu: time.Minute, failure: "it failed"}}, all); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(files.table)
	want := strings.Join([]string{
		"part\tpackage\ttest\twall seconds\tCPU seconds\tresult",
		"unit\t\t\t90.0\t60.0\tit failed",
		"unit\tp\t\t28.0\t3.0\tfail",
		"unit\tp\tTestAll\t41.5\t\tpass",
		"unit\tp\tTestAll/first\t20.0\t\tpass",
		"unit\tp\tTestAll/slow\t21.5\t\tpass",
		"unit\tp\tTestBroken\t4.0\t\tfail",
		"unit\tp\tTestFast\t0.5\t\tpass",
		"unit\tp\tTestLeftOut\t0.0\t\tskip",
		"unit\tp\tTestShaky\t2.0\t\tflaky", "",
	}, "\n")
	if err != nil || string(got) != want {
		t.Errorf("Got %v:\n%s\nwant\n%s", err, got, want)
	}
}

func TestSummary(t *testing.T) {
	_, all := recorded(t)
	slow := "p TestAll/slow (22 s), and a test may take 20 s"
	for _, test := range []struct {
		name   string
		part   part
		budget float64
		passed bool
		want   string
		not    string
	}{
		{"without a budget", part{name: "unit"}, 0, true, "FLAKY p TestShaky (2 s) passed only when it ran once more, alone\nFAILED p TestBroken", "OVER BUDGET"},
		{"the budget of a test", part{name: "unit"}, 60, true, "OVER BUDGET\n  " + slow + "\nThe five longest tests:\n  p TestAll/slow", "s of CPU"},
		{"the budget of all", part{name: "unit"}, 2, true, "OVER BUDGET\n  the tests took 3 s of CPU, and the budget is 2 s\n  " + slow, "FAILED unit"},
		{"a failure", part{name: "unit", failure: "it failed"}, 0, false, "FAILED unit: it failed\n", "OVER BUDGET"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			parts := []part{test.part}
			if got := summarize(&out, parts, all, overBudget(test.budget, all)); got != test.passed {
				t.Errorf("Got %t, want %t", got, test.passed)
			}
			if !strings.Contains(out.String(), test.want) || strings.Contains(out.String(), test.not) {
				t.Errorf("Got\n%s\nwant %q in it, and not %q", out.String(), test.want, test.not)
			}
		})
	}
}

func TestSecond(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/a_test.go":     "package a\n\nfunc TestOne(t *testing.T) {\n\tring.Second(t, \"\")\n}\n\nfunc TestTwo(t *testing.T) {}\n",
		"b/b_test.go":     "package b\n\nfunc TestThree(t *testing.T) {\n\tt.Parallel()\n\tring.Second(t, \"\")\n}\n",
		"c/c_test.go":     "package c\n\nfunc TestFour(t *testing.T) {}\n",
		"other/go.mod":    "module other\n",
		"other/d_test.go": "package d\n\nfunc TestFive(t *testing.T) {\n\tring.Second(t, \"\")\n}\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := second(&out, dir); err != nil {
		t.Fatal(err)
	}
	if want := "^(TestOne|TestThree)$\n./a\n./b\n"; out.String() != want {
		t.Errorf("Got %q, want %q", out.String(), want)
	}
	text := "package a\n\nfunc TestOne(t *testing.T) {}\n\nfunc helper(t *testing.T) {\n\tring.Second(t, \"\")\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "a/a_test.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := second(&out, dir); err == nil || !strings.Contains(err.Error(), "a_test.go:6: ") {
		t.Errorf("Got error %v, want one that names the line", err)
	}
}

// gateIn builds the command into a folder with a Makefile, and returns the command to run it.
func gateIn(t *testing.T, makefile string, args ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "bin", "gate")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("Building: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(makefile), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	return cmd
}

func TestRun(t *testing.T) {
	makefile := `good:
	@echo "temporary: $$TMPDIR"; touch "$$TMPDIR/file"
bad:
	@exit 3
leaving:
	@sleep 600 >/dev/null 2>&1 &
`
	cmd := gateIn(t, makefile, "run", "-rest", "The rest.", "good")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "(good 0 s): all passed. The rest.\n") {
		t.Errorf("Got %v, %s, want that it passed", err, out)
	}
	_, temporary, _ := strings.Cut(string(out), "temporary: ")
	temporary, _, _ = strings.Cut(temporary, "\n")
	if _, err := os.Stat(temporary); temporary == "" || !os.IsNotExist(err) {
		t.Errorf("The temporary folder %q: got error %v, want that it is gone", temporary, err)
	}
	again := exec.CommandContext(t.Context(), cmd.Path, "run", "bad", "good", "leaving")
	again.Dir = cmd.Dir
	out, err = again.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "FAILED bad: make bad failed with exit code 2\n") || !strings.Contains(string(out), "not passed.\n") {
		t.Errorf("Got %v, %s, want that bad failed", err, out)
	}
	if runtime.GOOS == "linux" && !strings.Contains(string(out), "FAILED leaving: it left programs running: sleep (") {
		t.Errorf("Got %s, want the program that was left running", out)
	}
}

// TestKilledRunLeavesNothing kills a run while go test runs a test. The next run kills that test.
func TestKilledRunLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Only on Linux a program ends with its parent.")
	}
	cmd := gateIn(t, "waiting:\n\t@cd module && touch $$TMPDIR/begun && exec go test -exec '../bin/gate exec' .\nnext:\n", "run", "waiting")
	module := filepath.Join(cmd.Dir, "module")
	if err := os.Mkdir(module, 0o755); err != nil {
		t.Fatal(err)
	}
	started := filepath.Join(cmd.Dir, "started")
	for name, text := range map[string]string{
		"go.mod": "module m\n",
		"m_test.go": "package m\n\nimport (\n\"os\"\n\"testing\"\n\"time\"\n)\n\n" +
			"func Test(t *testing.T) {\n\tos.WriteFile(\"" + started + "\", []byte(os.Getenv(\"TMPDIR\")), 0o600)\n\ttime.Sleep(time.Hour)\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var temporary string
	for end := time.Now().Add(2 * time.Minute); temporary == ""; time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(started)
		if temporary = string(text); time.Now().After(end) {
			t.Fatal("The test does not start")
		}
	}
	next := func() ([]byte, error) {
		other := exec.CommandContext(t.Context(), cmd.Path, "run", "next")
		other.Dir = cmd.Dir
		return other.CombinedOutput()
	}
	if out, err := next(); err == nil || !strings.Contains(string(out), "another run uses ") {
		t.Errorf("A second run: got %v, %s, want that it is refused", err, out)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // It was killed.
	if out, err := next(); err != nil {
		t.Errorf("The next run: %v, %s", err, out)
	}
	if left := running("TMPDIR=" + temporary); len(left) > 0 {
		t.Errorf("Still running: %v", left)
	}
	if _, err := os.Stat(temporary); !os.IsNotExist(err) {
		t.Errorf("The temporary folder: got error %v, want that it is gone", err)
	}
}

// TestMeasure runs programs as go test -exec does.
func TestMeasure(t *testing.T) {
	cmd := gateIn(t, "")
	for _, test := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"true"}, 0, ""},
		{[]string{"sh", "-c", "exit 1"}, 1, ""},
		{[]string{"sh", "-c", "exit 3"}, 3, "panic: the test binary ended: exit status 3\n"},
		{[]string{"sh", "-c", "kill -9 $$"}, 2, "panic: the test binary ended: signal: killed\n"},
		{[]string{"true", "-test.run=^$"}, 1, "gate: a TestMain failed; that is not repeated\n"},
		{[]string{"/no/such/program"}, 1, "gate: fork/exec /no/such/program: no such file or directory\n"},
	} {
		run := exec.CommandContext(t.Context(), cmd.Path, append([]string{"exec"}, test.args...)...)
		out, _ := run.CombinedOutput()
		if got := run.ProcessState.ExitCode(); got != test.code || string(out) != test.out {
			t.Errorf("%q: got the code %d and %q, want %d and %q", test.args, got, out, test.code, test.out)
		}
	}
	recorded, err := os.ReadFile(filepath.Join(cmd.Dir, "bin", "times", "cpu"))
	if got := strings.Count(string(recorded), "\n"); err != nil || got != 4 {
		t.Errorf("Got %v and %d records, want 4: one of each program that ran", err, got)
	}
}

// TestASignalAtTheEndIsNotLost has a command that ends at the moment of a signal, as make does if both get it.
func TestASignalAtTheEndIsNotLost(t *testing.T) {
	kept := make(chan os.Signal, 100) // without it, the signal would end the test
	signal.Notify(kept, syscall.SIGTERM)
	defer signal.Stop(kept)
	for i := range 100 {
		var interrupted atomic.Bool
		cmd := exec.Command("sh", "-c", "kill -TERM $PPID")
		if _, err := foreground(cmd, syscall.SIGTERM, &interrupted); err != nil {
			t.Fatal(err)
		}
		if !interrupted.Load() {
			t.Fatalf("The signal of command %d was lost", i+1)
		}
	}
}
