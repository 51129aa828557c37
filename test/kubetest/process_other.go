//go:build !linux

package kubetest

import "syscall"

// attributes keep the terminal's signals from the process.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
