package certs_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"
)

func TestPathKeysAreSharedSecrets(t *testing.T) {
	client := fake.NewClientset()
	a := newAuthority(t, secretStore(client), options(newClock()))
	replica := newAuthority(t, secretStore(client), options(newClock()))
	stranger := newAuthority(t, secretStore(fake.NewClientset()), options(newClock()))

	keys := a.PathKeys()
	if len(keys) != 1 || len(keys[0]) != 32 {
		t.Fatalf("Got the keys %x, want one of 32 bytes", keys)
	}
	if diff := cmp.Diff(keys, replica.PathKeys()); diff != "" {
		t.Errorf("Keys of a second replica (-first +second):\n%s", diff)
	}
	if bytes.Equal(keys[0], stranger.PathKeys()[0]) {
		t.Error("Another CA has the same path key")
	}
	keys[0][0]++
	if diff := cmp.Diff(a.PathKeys(), replica.PathKeys()); diff != "" {
		t.Errorf("Keys after the caller changed its copy (-first +second):\n%s", diff)
	}
}

func TestFilesHaveNoPathKeys(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	issued(t, clock).write(t, dir)
	files, err := newFiles(t, dir, clock)
	if err != nil {
		t.Fatal(err)
	}
	if keys := files.PathKeys(); len(keys) != 0 {
		t.Errorf("Got the keys %x, want none", keys)
	}
}
