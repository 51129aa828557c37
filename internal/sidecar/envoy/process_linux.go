package envoy

import (
	"fmt"
	"os"
	"syscall"
)

// capNetAdmin is CAP_NET_ADMIN of linux/capability.h.
const capNetAdmin = 12

func processAttributes(u *User) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if u == nil {
		return a
	}
	a.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID}
	if u.Transparent {
		a.AmbientCaps = []uintptr{capNetAdmin}
	}
	return a
}

// giveOutput makes the pipe that Envoy writes to its user's, as access logs open /dev/stdout
// anew. What is no pipe of ours stays whose it is.
func giveOutput(pid int, u *User) {
	if u == nil {
		return
	}
	for _, fd := range []int{1, 2} {
		name := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
		if info, err := os.Stat(name); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			_ = os.Chown(name, int(u.UID), int(u.GID)) // without, there is no access log
		}
	}
}
