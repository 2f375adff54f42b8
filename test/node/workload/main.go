// Workload is the program of the images in tests, and of the sandboxes of pods. It is static, and needs nothing of its
// image.
//
//	workload              do nothing until a signal
//	workload echo WORDS   print the words
//	workload log WORDS    print the words, then do nothing until a signal
//
// In an image of an init container, it has the name migrate, and ends at once.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if filepath.Base(os.Args[0]) == "migrate" {
		return nil
	}
	command := strings.Join(args[:min(1, len(args))], "")
	switch rest := strings.Join(args[min(1, len(args)):], " "); command {
	case "":
		wait()
	case "echo":
		fmt.Println(rest)
	case "log":
		fmt.Println(rest)
		wait()
	default:
		return fmt.Errorf("unknown command %q", command)
	}
	return nil
}

// wait waits for a signal. The first process of a pod also reaps the processes whose parents have ended.
func wait() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
