package main

import (
	"context"
	"fmt"
	"time"
)

const (
	pollPeriod = 50 * time.Millisecond
	startLimit = 30 * time.Second
	// The demo prints nothing for the first seconds of a wait, and then prints a reminder at intervals.
	firstWord = 5 * time.Second
	nextWord  = 15 * time.Second
)

// say prints a progress message.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "demo: "+format+"\n", args...)
}

// during calls f and prints a reminder at intervals while f runs.
func (d *demo) during(what string, f func() error) error {
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- f() }()
	word := time.After(firstWord)
	for {
		select {
		case err := <-done:
			return err
		case <-word:
			word = time.After(nextWord)
			d.say("%s, %s", what, since(began))
		}
	}
}

// await repeats the probe until it succeeds or the time is up. It prints the probe's error at intervals.
func (d *demo) await(ctx context.Context, what string, probe func(context.Context) error) error {
	began := time.Now()
	word := began.Add(firstWord)
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		if time.Since(began) >= startLimit {
			return fmt.Errorf("waiting for %s, given up after %s: %w", what, startLimit, err)
		}
		if time.Now().After(word) {
			word = time.Now().Add(nextWord)
			d.say("waiting for %s, %s: %v", what, since(began), err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollPeriod):
		}
	}
}

func since(began time.Time) time.Duration { return time.Since(began).Round(100 * time.Millisecond) }
