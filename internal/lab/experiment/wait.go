package experiment

import (
	"context"
	"time"
)

// Wait waits for a while; it returns an error at once when ctx ends before.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
