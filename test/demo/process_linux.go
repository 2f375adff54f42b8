package main

import "syscall"

// childAttributes tie a program's life to ours, even if we are killed, and keep the terminal's interrupt
// from it, so that all is stopped in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
