//go:build !linux

package child

import "time"

func cpuClock(int) (time.Duration, error) { return 0, ErrUnsupported }
