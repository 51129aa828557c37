//go:build !linux

package child

import "syscall"

// Attributes are a process group of its own.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
