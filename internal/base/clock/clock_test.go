package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/base/clock"
)

func TestSleep(t *testing.T) {
	for _, test := range []struct {
		name          string
		timeout, wait time.Duration
		sleeps        time.Duration
		err           error
	}{
		{name: "waits", timeout: time.Hour, wait: time.Minute, sleeps: time.Minute},
		{name: "ends with the context", timeout: time.Second, wait: time.Minute, sleeps: time.Second, err: context.DeadlineExceeded},
		{name: "does not wait for a past time", timeout: time.Second, wait: -time.Minute},
		{name: "an ended context is an error even without a wait", wait: -time.Minute, err: context.DeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
				defer cancel()
				start := time.Now()
				require.ErrorIs(t, clock.Sleep(ctx, test.wait), test.err)
				require.Equal(t, test.sleeps, time.Since(start))
			})
		})
	}
}
