// Package profile finds out where a process spends its CPU: an Envoy by perf, the control plane by its own
// CPU profile. Both give stacks for package flamegraph.
package profile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Options say what to record.
type Options struct {
	Perf      string        // path of perf; "": searched in PATH
	PID       int           // of the process
	Duration  time.Duration // duration
	Frequency int           // samples a second of each thread that runs
}

// Errors with advice for users.
var (
	// ErrNoPerf is the error if perf is not installed.
	ErrNoPerf = errors.New("perf: not found on this machine")
	// ErrNotPermitted is the error if the kernel refuses.
	ErrNotPermitted = errors.New("the kernel refuses permission")
	// ErrNoProcess is the error if the process does not exist.
	ErrNoProcess = errors.New("no such process")
	// ErrIdle is the error if the process used no CPU.
	ErrIdle = errors.New("the process used no CPU")
)

// Record samples a process with perf. It uses the CPU's timer, which virtual machines have too. It follows
// stacks by frame pointers; Envoy is built with them.
func Record(ctx context.Context, o *Options) (*Profile, error) {
	perf, err := findPerf(o.Perf)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "moonsail-profile-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system removes it eventually
	before, err := readThreads(o.PID)
	if err != nil {
		return nil, err
	}
	mapped := readMaps(o.PID)
	data, begun := filepath.Join(dir, "perf.data"), time.Now()
	if err := record(ctx, perf, data, o); err != nil {
		return nil, err
	}
	p := &Profile{PID: o.PID, Frequency: o.Frequency, Seconds: time.Since(begun).Seconds()}
	after, _ := readThreads(o.PID) // the process may have ended; its CPU times are unknown then
	samples, err := script(ctx, perf, data)
	if err != nil {
		return nil, err
	}
	if len(samples) == 0 {
		return nil, ErrIdle
	}
	p.fill(samples, newNamer(o.PID, mapped), before, after)
	return p, nil
}

func findPerf(name string) (string, error) {
	if name == "" {
		name = "perf"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoPerf, err)
	}
	return path, nil
}

// record runs until the time is over, or the process has ended.
func record(ctx context.Context, perf, data string, o *Options) error {
	_, err := run(ctx, perf, "record", "--quiet", "--no-buildid-cache", "--event", "cpu-clock", "--freq", strconv.Itoa(o.Frequency),
		"--call-graph", "fp", "--pid", strconv.Itoa(o.PID), "--output", data,
		"--", "sleep", strconv.FormatFloat(o.Duration.Seconds(), 'f', 3, 64))
	if err != nil && !alive(o.PID) {
		return fmt.Errorf("process %d: %w", o.PID, ErrNoProcess)
	}
	return err
}

func script(ctx context.Context, perf, data string) ([]Sample, error) {
	out, err := run(ctx, perf, "script", "--input", data, "--no-inline", "--force", "--fields", scriptFields)
	if err != nil {
		return nil, err
	}
	return parseScript(bytes.NewReader(out))
}

// run runs perf. If ctx ends, it interrupts perf, which then ends what it has started.
func run(ctx context.Context, perf string, args ...string) ([]byte, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, perf, args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PERF_PAGER=cat")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil:
		return out.Bytes(), nil
	case refusedByKernel(said.String()):
		return nil, fmt.Errorf("perf %s: %w (kernel.perf_event_paranoid is %s)", args[0], ErrNotPermitted, paranoid())
	}
	return nil, fmt.Errorf("perf %s: %w: %s", args[0], err, cmp.Or(firstLines(said.String()), "no reason given: check that this machine allows sampling of processes"))
}

// refusedByKernel recognizes perf's messages about missing permission.
func refusedByKernel(said string) bool {
	for _, words := range []string{"perf_event_paranoid", "Permission denied", "Operation not permitted", "No permission", "is limited"} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// paranoid returns the kernel's limit for measurements by users other than root.
func paranoid() string {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return "not known"
	}
	return strings.TrimSpace(string(b))
}

const wordsOfPerf = 4 // lines; the rest is usage text

func firstLines(text string) string {
	list := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(list[:min(len(list), wordsOfPerf)], "; ")
}
