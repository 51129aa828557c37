package profile

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// thread is a thread as the kernel describes it.
type thread struct {
	name string
	used time.Duration // CPU time since its start
}

func alive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, pid))
	return err == nil
}

// readThreads reads names and CPU times of a process's threads, by ID.
func readThreads(pid int) (map[int]thread, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, ErrNoProcess)
	}
	out := map[int]thread{}
	for _, t := range tasks {
		name, err := os.ReadFile(filepath.Join(dir, t.Name(), "comm"))
		stat, err2 := os.ReadFile(filepath.Join(dir, t.Name(), "schedstat"))
		if err != nil || err2 != nil {
			continue // it has ended
		}
		id, _ := strconv.Atoi(t.Name())              // the kernel's own number
		used, _, _ := strings.Cut(string(stat), " ") // nanoseconds
		ns, err := strconv.ParseInt(used, 10, 64)
		if err == nil {
			out[id] = thread{strings.TrimSpace(string(name)), time.Duration(ns)}
		}
	}
	return out, nil
}

// mapping is a part of a file in memory.
type mapping struct {
	from, to, offset uint64
	file             string
}

// readMaps reads the mapped code of a process; nil without permission.
func readMaps(pid int) []mapping {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil
	}
	return parseMaps(text)
}

// parseMaps reads lines "FROM-TO PERMISSIONS OFFSET DEVICE INODE FILE", and keeps those of code.
func parseMaps(text []byte) (out []mapping) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || !strings.Contains(f[1], "x") || !strings.HasPrefix(f[5], "/") {
			continue
		}
		first, last, _ := strings.Cut(f[0], "-")
		from, err := strconv.ParseUint(first, 16, 64)
		to, err2 := strconv.ParseUint(last, 16, 64)
		offset, err3 := strconv.ParseUint(f[2], 16, 64)
		if err == nil && err2 == nil && err3 == nil {
			out = append(out, mapping{from, to, offset, strings.Join(f[5:], " ")})
		}
	}
	return out
}
