package agent

import "syscall"

// setEffectiveGroup changes the effective group of all threads of this process.
func setEffectiveGroup(gid int) error { return syscall.Setresgid(-1, gid, -1) }
