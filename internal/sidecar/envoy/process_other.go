//go:build !linux

package envoy

import "syscall"

// There is no parent-death signal: an Envoy outlives a parent that was killed with SIGKILL.
func processAttributes(u *User) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if u != nil {
		a.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID}
	}
	return a
}

func giveOutput(int, *User) {}
