// Package profile finds out where a process spends its CPU: an Envoy by perf, the control
// plane by its own CPU profile. Both give stacks that package flamegraph draws.
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
	Perf      string        // the program; "": perf, by PATH
	PID       int           // of the process
	Duration  time.Duration // how long
	Frequency int           // samples a second of each thread that runs
}

// Kinds of failures that people can do something about.
var (
	// ErrNoPerf: there is no such program.
	ErrNoPerf = errors.New("there is no perf on this machine")
	// ErrNotPermitted: the kernel does not let us.
	ErrNotPermitted = errors.New("the kernel does not permit it")
	// ErrNoProcess: the process is not there.
	ErrNoProcess = errors.New("there is no such process")
	// ErrIdle: no CPU was used.
	ErrIdle = errors.New("the process has used no CPU meanwhile")
)

// Record has perf sample a process, and gives what it was doing. The clock is the CPU's
// timer, which virtual machines have too; stacks are followed by frame pointers, which Envoy
// is built with.
func Record(ctx context.Context, o *Options) (*Profile, error) {
	perf, err := findPerf(o.Perf)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "moonsail-profile-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system removes it in the end
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
	after, _ := readThreads(o.PID) // it may have ended: times are not known then
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

// run runs perf. When ctx ends it is asked to, and so ends what it has started.
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
	return nil, fmt.Errorf("perf %s: %w: %s", args[0], err, cmp.Or(firstLines(said.String()), "it does not say why; may processes be sampled on this machine?"))
}

// refusedByKernel knows what perf says where it may not.
func refusedByKernel(said string) bool {
	for _, words := range []string{"perf_event_paranoid", "Permission denied", "Operation not permitted", "No permission", "is limited"} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// paranoid is how much the kernel lets people measure who are not root.
func paranoid() string {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return "not known"
	}
	return strings.TrimSpace(string(b))
}

const wordsOfPerf = 4 // lines: more is usage

func firstLines(text string) string {
	list := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(list[:min(len(list), wordsOfPerf)], "; ")
}
