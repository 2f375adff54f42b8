package main

import (
	"io"
	"os"
	"strings"
	"sync"
)

// logFile stores the output of a program. After follow it also copies the output to a writer.
type logFile struct {
	path string

	mu     sync.Mutex
	file   *os.File
	reader io.Writer
}

func newLogFile(path string) (*logFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	return &logFile{path: path, file: file}, err
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reader != nil {
		_, _ = l.reader.Write(p)
	}
	return l.file.Write(p)
}

// follow writes the stored output to w, and then copies all further output to w.
func (l *logFile) follow(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, err := os.ReadFile(l.path)
	if err != nil {
		text = []byte(err.Error() + "\n")
	}
	_, _ = w.Write(text)
	l.reader = w
}

func (l *logFile) close() error { return l.file.Close() }

// tail returns the last lines.
func (l *logFile) tail(lines int) string {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
