package child

import "syscall"

// Attributes puts the process into a new process group, so that Ctrl-C reaches only the lab, which stops its children.
// If the lab dies, the kernel ends them.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
