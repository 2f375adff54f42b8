//go:build !linux

package e2e

import "syscall"

// childAttributes are less than elsewhere: no child here can be bound to the life of its parent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
