//go:build !linux

package process

import "syscall"

// childAttributes returns attributes that start a server in its own process group. This platform has no
// parent death signal, so a server outlives a starter that is killed before it calls Stop.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
