//go:build !linux

package openloop

import "time"

func sleepUntil(at time.Time) { time.Sleep(time.Until(at)) }
