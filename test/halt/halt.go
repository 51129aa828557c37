// Package halt stops processes where they are, for tests of processes that no longer answer.
package halt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long threads may go on until the test fails.
const patience = time.Minute

// Process stops all threads of a process until it gets SIGCONT, and returns when none runs. The signal alone returns
// earlier, and a running thread may still answer. Without /proc it only sends the signal.
func Process(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	require.Eventually(t, func() bool { return still(pid) }, patience, time.Millisecond, "process %d stands still", pid)
}

// still reports whether no thread of a process runs or waits to run. A thread that has ended does neither.
func still(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is well formed
	for _, path := range stats {
		if text, err := os.ReadFile(path); err == nil && !bytes.Contains(text, []byte(") T ")) {
			return false
		}
	}
	return true
}
