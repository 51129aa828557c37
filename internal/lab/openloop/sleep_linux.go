package openloop

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleepUntil is more exact than the runtime's timers, which may be late by a millisecond on an idle process.
func sleepUntil(at time.Time) {
	for d := time.Until(at); d > 0; d = time.Until(at) {
		ts := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&ts, nil) // a signal ends it early; the loop sleeps again
	}
}
