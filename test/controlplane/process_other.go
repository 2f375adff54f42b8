//go:build !linux

package controlplane

import "syscall"

// childAttributes give a server a process group of its own. There is no death signal here, so a server
// outlives a starter that is killed before it could call Stop.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
