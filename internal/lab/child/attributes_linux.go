package child

import "syscall"

// Attributes are a process group of its own, so that Ctrl-C reaches the lab alone, which
// ends its children; and the kernel's help where the lab cannot.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
