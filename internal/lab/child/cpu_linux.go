package child

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuClock reads the CPU clock of another process; its number is made as
// clock_getcpuclockid(3) does (CPUCLOCK_SCHED of a process).
func cpuClock(pid int) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil { //nolint:gosec // a pid has 22 bits at most
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
