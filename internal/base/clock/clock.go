// Package clock has waits that end with a context.
package clock

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends. It returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err()
}
