package profile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
)

// fakePerf is a program in place of perf.
func fakePerf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perf")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
	return path
}

func options(perf string) *Options {
	return &Options{Perf: perf, PID: os.Getpid(), Duration: time.Second, Frequency: 99}
}

func TestFailures(t *testing.T) {
	for _, tc := range []struct {
		name, perf string
		want       error
	}{
		{"none", "", ErrNoPerf},
		{"not permitted", "echo 'Access to performance monitoring and observability operations is limited.' >&2; exit 255", ErrNotPermitted},
		{"old and not permitted", "echo 'You may not have permission... perf_event_paranoid' >&2; exit 255", ErrNotPermitted},
		{"idle", "exit 0", ErrIdle},
	} {
		perf := filepath.Join(t.TempDir(), "none")
		if tc.perf != "" {
			perf = fakePerf(t, tc.perf)
		}
		_, err := Record(t.Context(), options(perf))
		require.ErrorIs(t, err, tc.want, tc.name)
	}
	_, err := Record(t.Context(), options(fakePerf(t, "echo 'WARNING: perf not found for kernel 6.1' >&2; exit 2")))
	require.ErrorContains(t, err, "perf record: exit status 2: WARNING: perf not found for kernel 6.1")
	o := options(fakePerf(t, "exit 0"))
	o.PID = 1 << 30
	_, err = Record(t.Context(), o)
	require.ErrorIs(t, err, ErrNoProcess)
}

// TestRecordReads checks samples of perf, with the names of this process's threads.
func TestRecordReads(t *testing.T) {
	perf := fakePerf(t, "[ $1 = script ] || exit 0\ncat <<'EOF'\n"+scripted+"EOF\n")
	p, err := Record(t.Context(), options(perf))
	require.NoError(t, err)
	require.EqualValues(t, 3, p.Samples)
	require.Equal(t, os.Getpid(), p.PID)
}

// TestInterrupt checks that perf ends with its context, and leaves nothing behind.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	started := filepath.Join(t.TempDir(), "started")
	perf := fakePerf(t, "touch "+started+"; exec sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := Record(ctx, options(perf))
		done <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(started); return !errors.Is(err, os.ErrNotExist) }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, await.From(t, done), context.Canceled)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
