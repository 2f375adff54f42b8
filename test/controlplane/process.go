package controlplane

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/test/controlplane/process"
)

// server is a started server of the control plane.
type server struct {
	*process.Process
	name, log string
}

// startServer starts a server and writes the server's output to a log file with the server's name. When the server
// exits for any reason, startServer sends the server to exited.
func startServer(name, path string, args []string, logDir string, exited chan<- *server) (*server, error) {
	s := &server{name: name, log: filepath.Join(logDir, name+".log")}
	started := make(chan struct{})
	defer close(started)
	var err error
	s.Process, err = process.StartLogged(s.log, func() { <-started; exited <- s }, path, args...)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// stop stops the server. It returns an error if the server had already exited.
func (s *server) stop(grace time.Duration) error {
	if !s.Running() {
		return s.failure()
	}
	// A killed server has exited too, so ErrRunning is no error here.
	_ = s.Stop(grace)
	return nil
}

// failure describes the unexpected exit of a server.
func (s *server) failure() error {
	return fmt.Errorf("%s exited unexpectedly (%s); the end of its log:\n%s", s.name, s.Exit(), s.tail(logLines))
}

// tail returns the last lines of the log.
func (s *server) tail(lines int) string { return process.Tail(s.log, lines) }
