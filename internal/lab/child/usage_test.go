package child

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatCPU(t *testing.T) {
	d, err := statCPU([]byte("7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0"))
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, d)
	_, err = statCPU([]byte("7 (a"))
	require.Error(t, err)
}

func TestStatusMemory(t *testing.T) {
	require.Equal(t, Memory{RSS: 2 << 20, Peak: 3 << 20}, statusMemory("Name:\tx\nVmHWM:\t    3072 kB\nVmRSS:\t    2048 kB\nThreads:\t9\n"))
}

func TestHeapProfile(t *testing.T) {
	h, err := heapProfile("heap profile: 1: 2 [3: 4]\n\n# runtime.MemStats\n# Alloc = 9\n# HeapAlloc = 4096\n# Stack = 512 / 1024\n")
	require.NoError(t, err)
	require.Equal(t, Heap{Live: 4096, Stacks: 512}, h)
	_, err = heapProfile("heap profile: none")
	require.Error(t, err)
}

// The CPU clock of this process advances, and no faster than its threads can run.
func TestCPU(t *testing.T) {
	before, err := CPU(os.Getpid())
	require.NoError(t, err)
	for sum, i := 0, 0; ; i++ {
		sum += i
		now, err := CPU(os.Getpid())
		require.NoError(t, err)
		require.GreaterOrEqual(t, now, before)
		if now > before {
			break
		}
	}
	m, err := MemoryOf(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, m.RSS)
	require.GreaterOrEqual(t, m.Peak, m.RSS)
}
