//go:build !linux

package child

import "syscall"

// Attributes puts the process into a new process group.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
