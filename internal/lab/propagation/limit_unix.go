//go:build unix

package propagation

import (
	"fmt"
	"syscall"
)

// raiseFileLimit lets this process, and those it starts, have so many files open. (Go
// raises the soft limit to the hard one by itself as a program starts, but gives its
// children the old one, unless it was set.)
func raiseFileLimit(need uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if l.Max < need { // the administrator may raise it
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: need, Max: need}) == nil {
			return nil
		}
	}
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if l.Cur < need {
		return fmt.Errorf("%d files must be open at the same time, and the limit is %d: raise it (ulimit -Hn, LimitNOFILE) or measure fewer proxies (--mesh)", need, l.Cur)
	}
	return nil
}
