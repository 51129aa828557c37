//go:build !linux

package envoy

import "syscall"

// Without a parent-death signal an Envoy outlives a parent that was killed with SIGKILL.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
