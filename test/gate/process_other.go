//go:build !linux

package main

import (
	"syscall"
	"time"
)

// childAttributes and endWithParent cannot make a child end with its parent here.
func childAttributes(syscall.Signal) *syscall.SysProcAttr { return nil }
func endWithParent() error                                { return nil }

// kill finds processes on Linux only.
func kill(string, time.Duration) ([]string, error) { return nil, nil }
