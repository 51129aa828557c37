// Package threads reads the CPU time of each thread of an Envoy.
package threads

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// CPU is the CPU time of an Envoy's threads since their start, in nanoseconds.
type CPU struct {
	Main    time.Duration
	Workers []time.Duration // by number
	Others  time.Duration   // of watchdogs, gRPC, compilers
}

// workerName is the prefix of the names of Envoy's worker threads; their number follows.
const workerName = "wrk:worker_"

// Read reads the threads of a running Envoy.
func Read(pid int) (CPU, error) { return read("/proc", pid) }

func read(proc string, pid int) (c CPU, err error) {
	dirs, err := filepath.Glob(filepath.Join(proc, strconv.Itoa(pid), "task", "*"))
	if err != nil || len(dirs) == 0 {
		return c, fmt.Errorf("threads of process %d: %w", pid, child.ErrUnsupported)
	}
	for _, dir := range dirs {
		name, err1 := os.ReadFile(filepath.Join(dir, "comm"))
		stat, err2 := os.ReadFile(filepath.Join(dir, "schedstat"))
		if err1 != nil || err2 != nil {
			continue // it has ended
		}
		used, _, _ := strings.Cut(string(stat), " ")
		ns, err := strconv.ParseInt(used, 10, 64)
		if err != nil {
			return c, fmt.Errorf("%s/schedstat: %w", dir, err)
		}
		c.add(filepath.Base(dir) == strconv.Itoa(pid), strings.TrimSpace(string(name)), time.Duration(ns))
	}
	return c, nil
}

func (c *CPU) add(main bool, name string, used time.Duration) {
	number, worker := strings.CutPrefix(name, workerName)
	n, err := strconv.Atoi(number)
	switch {
	case main:
		c.Main += used
	case worker && err == nil && n >= 0 && n < mostWorkers:
		for len(c.Workers) <= n {
			c.Workers = append(c.Workers, 0)
		}
		c.Workers[n] += used
	default:
		c.Others += used
	}
}

const mostWorkers = 1024

// Sub returns the difference to an earlier value.
func (c CPU) Sub(before CPU) CPU {
	out := CPU{Main: c.Main - before.Main, Others: c.Others - before.Others}
	for i, used := range c.Workers {
		if i < len(before.Workers) {
			used -= before.Workers[i]
		}
		out.Workers = append(out.Workers, used)
	}
	return out
}

// Add returns the sum of both.
func (c CPU) Add(o CPU) CPU {
	out := CPU{Main: c.Main + o.Main, Others: c.Others + o.Others, Workers: make([]time.Duration, max(len(c.Workers), len(o.Workers)))}
	copy(out.Workers, c.Workers)
	for i, used := range o.Workers {
		out.Workers[i] += used
	}
	return out
}

// Total returns the sum of all threads.
func (c CPU) Total() time.Duration { return c.Main + c.Others + c.AllWorkers() }

// AllWorkers returns the sum of the workers.
func (c CPU) AllWorkers() (sum time.Duration) {
	for _, used := range c.Workers {
		sum += used
	}
	return sum
}
