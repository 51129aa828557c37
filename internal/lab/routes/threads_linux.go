package routes

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// readThreads reads the CPU time of Envoy's main thread and of its workers.
func readThreads(pid int) (t threads, err error) {
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return t, err
	}
	for _, dir := range dirs {
		name, err1 := os.ReadFile(filepath.Join(dir, "comm"))
		stat, err2 := os.ReadFile(filepath.Join(dir, "schedstat"))
		if err1 != nil || err2 != nil {
			continue // it has ended
		}
		spent, _, _ := strings.Cut(string(stat), " ")
		ns, err := strconv.ParseInt(spent, 10, 64)
		if err != nil {
			return t, fmt.Errorf("%s/schedstat: %w", dir, err)
		}
		switch {
		case filepath.Base(dir) == strconv.Itoa(pid):
			t.main = time.Duration(ns)
		case strings.HasPrefix(string(name), "wrk:"):
			t.workers += time.Duration(ns)
		}
	}
	return t, nil
}
