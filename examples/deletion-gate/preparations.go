package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The states of a preparation.
const (
	running = "running"
	done    = "done"
	failed  = "failed"
)

// preparation is the content of a file of the state. The name of the file is the gate and the UID of the pod.
type preparation struct {
	State string `json:"state"`
	// Message is the last line of the output of a command that failed.
	Message string   `json:"message,omitempty"`
	Request *request `json:"request"`
}

// preparations runs the command once for each gate and pod, and remembers the results in a folder.
type preparations struct {
	ctx     context.Context //nolint:containedctx // commands outlive the requests that start them
	folder  string
	command []string
	limit   time.Duration

	mu      sync.Mutex
	running sync.WaitGroup
}

// newPreparations begins again the preparations that were interrupted by the end of an earlier process.
func newPreparations(ctx context.Context, folder string, command []string, limit time.Duration) (*preparations, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	p := &preparations{ctx: ctx, folder: folder, command: command, limit: limit}
	names, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		known, err := read(file)
		if err != nil {
			return nil, err
		}
		if known.State == running && known.Request != nil {
			p.start(file, known.Request)
		}
	}
	return p, nil
}

// answer starts the preparation of a pod with the first Prepare. All further ones start nothing.
func (p *preparations) answer(q *request) (*response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	file := filepath.Join(p.folder, q.Gate+"_"+q.UID+".json")
	known, err := read(file)
	switch {
	case err == nil:
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case q.Action == "Check":
		return &response{UID: q.UID, Message: "no preparation was requested"}, nil
	default:
		known = preparation{State: running, Request: q}
		if err := store(file, known); err != nil {
			return nil, err
		}
		p.start(file, q)
	}
	switch known.State {
	case done:
		return &response{UID: q.UID, Ready: true}, nil
	case failed:
		return &response{UID: q.UID, Message: "the preparation failed: " + known.Message}, nil
	}
	return &response{UID: q.UID, Message: "the preparation is running"}, nil
}

// start runs the command, with the pod in its environment. The result of a command that was interrupted by the end of the
// process is not stored, so the next process runs it again.
func (p *preparations) start(file string, q *request) {
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, p.command[0], p.command[1:]...) //nolint:gosec // the user names the command
		cmd.Env = append(os.Environ(), "GATE="+q.Gate, "POD_UID="+q.UID, "POD_NAMESPACE="+q.Pod.Namespace, "POD_NAME="+q.Pod.Name, "NODE_NAME="+q.Pod.NodeName)
		// A child of the command may keep its output open.
		cmd.WaitDelay = shutdownGrace
		slog.InfoContext(ctx, "Preparing", "gate", q.Gate, "namespace", q.Pod.Namespace, "pod", q.Pod.Name, "uid", q.UID, "user", q.User)
		output, err := cmd.CombinedOutput()
		if p.ctx.Err() != nil {
			return
		}
		result := preparation{State: done, Request: q}
		if err != nil {
			result.State, result.Message = failed, lastLine(output, err)
		}
		slog.InfoContext(ctx, "Prepared", "pod", q.Pod.Name, "uid", q.UID, "state", result.State, "message", result.Message)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := store(file, result); err != nil {
			slog.ErrorContext(ctx, "Could not store the result", "err", err)
		}
	})
}

// wait waits for the commands, which end with the context.
func (p *preparations) wait() { p.running.Wait() }

func lastLine(output []byte, err error) string {
	lines := strings.Split(string(bytes.TrimSpace(output)), "\n")
	return strings.TrimSpace(lines[len(lines)-1] + " (" + err.Error() + ")")
}

func read(file string) (preparation, error) {
	var p preparation
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, fmt.Errorf("reading the state: %w", err)
	}
	return p, nil
}

// store replaces a file, so that the end of the process leaves the old content or the new one.
func store(file string, p preparation) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
