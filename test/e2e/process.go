package e2e

import (
	"github.com/postern-dev/postern/test/controlplane/process"
)

// loggedProcess is a child process whose output goes to a file.
type loggedProcess struct {
	*process.Process
	log string
}

func startProcess(log, path string, args ...string) (*loggedProcess, error) {
	p, err := process.StartLogged(log, nil, path, args...)
	if err != nil {
		return nil, err
	}
	return &loggedProcess{p, log}, nil
}

func (p *loggedProcess) output() string { return process.Output(p.log) }

// tail returns the last lines of the output.
func (p *loggedProcess) tail(lines int) string { return process.Tail(p.log, lines) }
