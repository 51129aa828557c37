package workers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc on all architectures of Linux.
const tick = 10 * time.Millisecond

// threadName begins the names of Envoy's worker threads; a number follows.
const threadName = "wrk:worker_"

// Threads returns the CPU time of each worker of a process, by number. proc is /proc.
func Threads(proc string, pid int) (map[int]time.Duration, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid), "task")
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("threads of Envoy: %w", err)
	}
	out := map[int]time.Duration{}
	for _, t := range tasks {
		stat, err := os.ReadFile(filepath.Join(dir, t.Name(), "stat"))
		if err != nil {
			continue // the thread has ended
		}
		if n, used, ok := parseStat(stat); ok {
			out[n] = used
		}
	}
	return out, nil
}

// parseStat reads "TID (NAME) STATE ..." of a worker. utime and stime are fields 14 and 15. The name may contain spaces
// and parentheses.
func parseStat(stat []byte) (worker int, used time.Duration, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return 0, 0, false
	}
	number, ok := strings.CutPrefix(string(stat[open+1:end]), threadName)
	worker, err := strconv.Atoi(number)
	fields := strings.Fields(string(stat[end+1:]))
	if !ok || err != nil || len(fields) < 13 {
		return 0, 0, false
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return worker, time.Duration(user+system) * tick, err == nil && err2 == nil
}
