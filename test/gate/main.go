// Command gate runs parts of the checks, each of which is a target of the Makefile, and measures them.
//
//	gate run [-strict] [-cpu SECONDS] [-tested FILE] [-rest TEXT] PART...
//
// runs make PART for each part, continues after a part that failed, and ends with what failed, what passed only in a
// second attempt, and how long each part took. It writes the wall time and the CPU time of each part and each package,
// and the wall time of each test, to times.tsv in its own folder.
//
//	gate exec PROGRAM...
//
// runs a test binary for go test -exec, and records its CPU time.
//
//	gate second MODULE
//
// prints a pattern for go test -run that matches the tests of the second ring in the folder of a module, and their
// packages. It prints nothing if there are none.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	code, err := command(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// command returns the exit code.
func command(args []string) (int, error) {
	program, err := os.Executable()
	if err != nil {
		return 1, err
	}
	times := timesIn(filepath.Dir(program))
	if len(args) > 1 && args[0] == "exec" {
		return measure(times, args[1:])
	}
	if len(args) == 2 && args[0] == "second" {
		return 0, second(os.Stdout, args[1])
	}
	if len(args) < 2 || args[0] != "run" {
		return 2, fmt.Errorf("want run, exec or second with arguments, got %q", args)
	}
	r := &run{times: times, out: os.Stdout}
	flags := flag.NewFlagSet("gate run", flag.ContinueOnError)
	flags.BoolVar(&r.strict, "strict", false, "fail if the run is over its budget")
	flags.Float64Var(&r.budget, "cpu", 0, "the budget of CPU time, in `seconds`; 0 means no budget, also not of a test")
	flags.StringVar(&r.tested, "tested", "", "the `file` that receives the hash of the tree if everything passed and nothing is uncommitted")
	flags.StringVar(&r.rest, "rest", "", "the last lines of a run that passed")
	if err := flags.Parse(args[1:]); err != nil {
		return 2, err
	}
	return r.all(flags.Args())
}
