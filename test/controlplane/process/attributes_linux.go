package process

import "syscall"

// childAttributes returns attributes that end a server when its parent dies. The kernel sends the death
// signal, so no watching process is needed. The signal also works when the parent is killed with SIGKILL or a
// test panics. The server runs in its own process group, so that the terminal's interrupt does not reach it
// and Stop stops the servers in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
