package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogFile(t *testing.T) {
	log, err := newLogFile(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if _, err := log.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("one\ntwo\n")
	var b strings.Builder
	log.follow(&b)
	write("three\n")
	if got, want := b.String(), "one\ntwo\nthree\n"; got != want {
		t.Errorf("The follower has %q, want %q", got, want)
	}
	if got, want := log.tail(2), "two\nthree"; got != want {
		t.Errorf("The tail is %q, want %q", got, want)
	}
	if err := log.close(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(log.path)
	if got, want := string(text), b.String(); got != want || err != nil {
		t.Errorf("The file has %q, %v; want %q", got, err, want)
	}
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	open := func() (*demo, func(), error) {
		d := &demo{options: options{dir: dir}}
		release, err := d.openFolder()
		return d, release, err
	}
	d, release, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.folder, "postern", "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(); err == nil || !strings.Contains(err.Error(), "another demo runs there") {
		t.Errorf("Got %v for a folder in use, want an error that says so", err)
	}
	release()
	if _, release, err = open(); err != nil {
		t.Fatal(err)
	}
	defer release()
	if entries, err := os.ReadDir(filepath.Join(dir, "postern")); len(entries) > 0 || err != nil {
		t.Errorf("The folder holds %v (%v), want it emptied", entries, err)
	}
}
