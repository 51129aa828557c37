//go:build unix

package session

import (
	"fmt"
	"syscall"
)

// RaiseFileLimit allows this process and its children to have that many open files. (Go raises the soft limit to the
// hard one when a program starts, but restores the old one for children, unless it was set.)
func RaiseFileLimit(need uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if l.Max < need { // root can raise the hard limit
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: need, Max: need}) == nil {
			return nil
		}
	}
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if l.Cur < need {
		return fmt.Errorf("limit of open files: needs %d, has %d: raise it (ulimit -Hn, LimitNOFILE) or measure fewer proxies (--mesh)", need, l.Cur)
	}
	return nil
}
