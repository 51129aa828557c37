package threads

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	proc := t.TempDir()
	task := func(tid, name, stat string) {
		dir := filepath.Join(proc, "7", "task", tid)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "comm"), []byte(name+"\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "schedstat"), []byte(stat), 0o600))
	}
	task("7", "envoy", "1000 5 3\n")
	task("10", "wrk:worker_1", "300 0 1\n")
	task("9", "wrk:worker_0", "200 0 1\n")
	task("11", "wrk:worker_x", "7 0 1\n")
	task("12", "dog:main_thread", "1 0 1\n")
	first, err := read(proc, 7)
	require.NoError(t, err)
	require.Equal(t, CPU{Main: 1000, Workers: []time.Duration{200, 300}, Others: 8}, first)
	require.EqualValues(t, 500, first.AllWorkers())
	require.EqualValues(t, 1508, first.Total())

	task("10", "wrk:worker_1", "350 0 1\n")
	second, err := read(proc, 7)
	require.NoError(t, err)
	require.Equal(t, CPU{Workers: []time.Duration{0, 50}}, second.Sub(first))
	require.Equal(t, CPU{Main: 1000, Workers: []time.Duration{200, 350}, Others: 8}, second.Sub(first).Add(first))
	require.Equal(t, first, first.Add(CPU{}))
	_, err = read(proc, 8)
	require.Error(t, err)
}
