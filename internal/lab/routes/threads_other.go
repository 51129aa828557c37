//go:build !linux

package routes

import (
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
)

func readThreads(int) (threads, error) { return threads{}, child.ErrUnsupported }

func sleepUntil(at time.Time) { time.Sleep(time.Until(at)) }
