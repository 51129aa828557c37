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

// giveOutput changes the owner of Envoy's output pipes to Envoy's user, because access logs open /dev/stdout again. It
// changes only pipes that this process created.
func giveOutput(pid int, u *User) {
	if u == nil {
		return
	}
	for _, fd := range []int{1, 2} {
		name := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
		if info, err := os.Stat(name); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			_ = os.Chown(name, int(u.UID), int(u.GID)) // without it there are no access logs
		}
	}
}
