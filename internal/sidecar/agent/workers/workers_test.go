package workers

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConnections(t *testing.T) {
	require.Equal(t, map[int]uint64{0: 11_500, 1: 1012}, Connections(map[string]uint64{
		"listener.0.0.0.0_15006.worker_0.downstream_cx_active":    11_500,
		"listener.0.0.0.0_15006.worker_1.downstream_cx_active":    1000,
		"listener.0.0.0.0_15001.worker_1.downstream_cx_active":    12,
		"listener.0.0.0.0_15006.downstream_cx_active":             12_500,
		"listener.stats.worker_0.downstream_cx_active":            1,
		"listener.admin.main_thread.downstream_cx_active":         1,
		"listener.envoy_internal_x.worker_0.downstream_cx_active": 7,
	}, "stats", "admin"))
}

func TestReports(t *testing.T) {
	start := time.Unix(1000, 0)
	samples := func(connections []uint64, cpu ...float64) (last, now Sample) {
		last = Sample{At: start, PID: 7, CPU: map[int]time.Duration{}}
		now = Sample{At: start.Add(10 * time.Second), PID: 7, CPU: map[int]time.Duration{}, Connections: map[int]uint64{}}
		for i, n := range connections {
			now.Connections[i] = n
		}
		for i, c := range cpu {
			last.CPU[i] = time.Hour
			now.CPU[i] = time.Hour + time.Duration(c*10*float64(time.Second))
		}
		return last, now
	}
	for _, tc := range []struct {
		name        string
		connections []uint64
		cpu         []float64
		imbalance   string
		advice      bool
	}{
		{"even", []uint64{100, 100}, []float64{0.5, 0.4}, "", false},
		{"uneven", []uint64{11_500, 1000, 1000, 1000}, []float64{0.5, 0.1, 0.1, 0.1}, "worker 0 has 11500 of 14500 connections, 3.2 times the mean", false},
		{"few say nothing", []uint64{8, 0}, []float64{0, 0}, "", false},
		{"one works", []uint64{20, 20}, []float64{0.1, 0.95}, "worker 1 uses 95% of a CPU, worker 0 10%", false},
		{"all work", []uint64{20, 20}, []float64{0.9, 0.95}, "", true},
		{"one worker", []uint64{2000}, []float64{0.3}, "", false},
		{"none", nil, nil, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			last, now := samples(tc.connections, tc.cpu...)
			r := Compare(last, now, 2, "--concurrency")
			require.Equal(t, tc.imbalance, r.Imbalance)
			require.Equal(t, tc.advice, r.Advice != "")
			require.Len(t, r.Workers, len(tc.connections))
			for i, w := range r.Workers {
				require.Equal(t, i, w.Worker)
				require.InDelta(t, tc.cpu[i], w.CPU, 0.001)
			}
		})
	}
	last, now := samples([]uint64{1}, 0.5)
	now.PID = 8
	r := Compare(last, now, 1, "default")
	require.Equal(t, -1.0, r.Workers[0].CPU, "another process")
	require.Zero(t, r.Over)
}

func TestThreads(t *testing.T) {
	proc := t.TempDir()
	task := func(tid, stat string) {
		dir := filepath.Join(proc, "7", "task", tid)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
	}
	task("7", "7 (envoy) S 1 1 1 0 -1 1 1 0 0 0 900 900 0 0 20 0 9 0 1 1 1")
	task("8", "8 (wrk:worker_0) S 1 1 1 0 -1 1 1 0 0 0 150 50 0 0 20 0 9 0 1 1 1")
	task("9", "9 (wrk:worker_12) R 1 1 1 0 -1 1 1 0 0 0 1 2 0 0 20 0 9 0 1 1 1")
	task("10", "10 (wrk:worker_x) R 1")
	task("11", "garbage")
	got, err := Threads(proc, 7)
	require.NoError(t, err)
	require.Equal(t, map[int]time.Duration{0: 2 * time.Second, 12: 30 * time.Millisecond}, got)
	_, err = Threads(proc, 8)
	require.Error(t, err)
	require.NoError(t, func() error { _, err := Threads("/proc", os.Getpid()); return err }())
}
