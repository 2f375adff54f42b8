package controlplane

import "syscall"

// childAttributes tie a server's life to ours. The death signal is the kernel's: it needs no further
// process that watches, and it works when we are killed with SIGKILL or a test panics. A process group of
// its own keeps the terminal's interrupt from a server, so that Stop stops them in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
