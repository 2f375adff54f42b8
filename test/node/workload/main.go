// Workload is the program of the images in tests, and of the sandboxes of pods. It is static, and needs nothing of its
// image.
//
//	workload              do nothing until a signal
//	workload echo WORDS   print the words
//	workload log WORDS    print the words, then do nothing until a signal
//	workload write FILE   write a file
//	workload use MIB      use memory, then do nothing until a signal
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
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
	command := strings.Join(args[:min(1, len(args))], "")
	switch rest := strings.Join(args[min(1, len(args)):], " "); command {
	case "":
		wait()
	case "echo":
		fmt.Println(rest)
	case "log":
		fmt.Println(rest)
		wait()
	case "write":
		return os.WriteFile(rest, []byte("written\n"), 0o600)
	case "use":
		mebibytes, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		memory := make([]byte, mebibytes<<20)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		fmt.Println("used", mebibytes)
		wait()
		fmt.Println(memory[0])
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
