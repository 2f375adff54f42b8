//go:build !linux

package main

import "syscall"

// childAttributes keep the terminal's interrupt from a program, so that all is stopped in order. There is
// no death signal here, so it outlives us if we are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
