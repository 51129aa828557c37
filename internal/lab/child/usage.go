package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrUnsupported means that this system does not provide the information about other processes.
var ErrUnsupported = errors.New("CPU time and memory of other processes are available on Linux only")

// ticks per second of /proc/PID/stat: USER_HZ, fixed in Linux's ABI.
const ticks = 100

// CPU is the CPU time that a process and its threads have used. Its resolution is that
// of the process's CPU clock, nanoseconds, or where that cannot be read, 10 ms.
func CPU(pid int) (time.Duration, error) {
	if d, err := cpuClock(pid); err == nil {
		return d, nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, errors.Join(ErrUnsupported, err))
	}
	return statCPU(b)
}

// statCPU takes utime and stime, fields 14 and 15. The command, field 2, may have blanks.
func statCPU(b []byte) (time.Duration, error) {
	end := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[end+1:]))
	if end < 0 || len(f) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat: cannot parse %q", b)
	}
	var sum uint64
	for _, s := range f[11:13] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// Memory is a process's resident memory in bytes, now and at its peak.
type Memory struct{ RSS, Peak int64 }

// MemoryOf reads a process's resident memory.
func MemoryOf(pid int) (Memory, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("memory of process %d: %w", pid, errors.Join(ErrUnsupported, err))
	}
	return statusMemory(string(b)), nil
}

func statusMemory(status string) (m Memory) {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		if len(f) != 2 || f[1] != "kB" {
			continue
		}
		kib, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "VmRSS":
			m.RSS = kib << 10
		case "VmHWM":
			m.Peak = kib << 10
		}
	}
	return m
}

// ResetPeak resets the peak of memory. If the kernel does not permit it, the peak stays that of the process's life.
func ResetPeak(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // see above
}

// Heap is what a Go process's memory is used for after a collection, in bytes.
type Heap struct{ Live, Stacks int64 }

// HeapOf lets a Go process collect its garbage twice, because the content of a sync.Pool survives one collection, and
// returns what is left. addr is the address of its profiles.
func HeapOf(ctx context.Context, addr string) (Heap, error) {
	var b []byte
	for range 2 {
		var err error
		if b, err = fetchProfile(ctx, addr, "heap?gc=1&debug=1"); err != nil {
			return Heap{}, err
		}
	}
	return heapProfile(string(b))
}

// fetchProfile asks a Go process for a profile, by name and query.
func fetchProfile(ctx context.Context, addr, name string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/debug/pprof/"+name, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// heapProfile reads the statistics at the end of a heap profile in text.
func heapProfile(text string) (h Heap, err error) {
	found := 0
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), " = ")
		if !ok {
			continue
		}
		value, _, _ = strings.Cut(value, " / ")
		into := map[string]*int64{"HeapAlloc": &h.Live, "Stack": &h.Stacks}[name]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseInt(value, 10, 64); err != nil {
			return h, fmt.Errorf("heap profile: %w", err)
		}
		found++
	}
	if found < 2 {
		return h, errors.New("heap profile: no statistics")
	}
	return h, nil
}
