package e2e

import "syscall"

// childAttributes have the kernel kill the child when we die without having stopped it, as in a panic or a
// time-out of the tests. The terminal's interrupt is for us alone: who is told when is what tests are about.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
