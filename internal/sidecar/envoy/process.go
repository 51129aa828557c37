package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// Options of an Envoy process.
type Options struct {
	Path      string // the binary
	Bootstrap string // file with the bootstrap configuration

	Concurrency       int           // worker threads; 0: one for each core
	DrainTime         time.Duration // of listeners that change or drain; whole seconds
	FlushInterval     time.Duration // of files; whole milliseconds; 0: one second
	FlushKB           uint32        // files are also flushed at this size; 0: Envoy's 64
	LogLevel          string        // one of LogLevels; empty: Envoy's default
	ComponentLogLevel string        // "upstream:debug,misc:error"
	LogFormat         string        // spdlog pattern; empty: Envoy's default
	LocalIPv6         bool          // the local address is IPv6 ("%DOWNSTREAM_LOCAL_ADDRESS%" and others)
	ExtraArgs         []string      // appended unchanged

	Env    []string  // "name=value"; added to the parent's environment
	Output io.Writer // Envoy's stderr, and its stdout if Stdout is nil
	Stdout io.Writer // nil: Output
	User   *User     // nil: the parent's user
}

// User is a user and group of this machine.
type User struct {
	UID, GID uint32
	// Transparent gives CAP_NET_ADMIN, to accept and open connections with other hosts' addresses.
	Transparent bool
}

// args returns the command line. Hot restart is disabled: one process without shared base ids, so that any number of
// Envoys run on one machine.
func (o *Options) args() []string {
	args := []string{
		"--config-path", o.Bootstrap,
		"--disable-hot-restart",
		"--allow-unknown-static-fields",
		// A drain closes clients' connections from the start, not with a growing probability.
		"--drain-strategy", "immediate",
		"--drain-time-s", strconv.Itoa(int((o.DrainTime + time.Second - 1) / time.Second)),
		"--file-flush-interval-msec", strconv.FormatInt(cmp.Or(o.FlushInterval, time.Second).Milliseconds(), 10),
		"--local-address-ip-version", ipVersion(o.LocalIPv6),
	}
	optional := func(flag, value string) {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	optional("--log-level", o.LogLevel)
	optional("--component-log-level", o.ComponentLogLevel)
	optional("--log-format", o.LogFormat)
	// Without the flag, Envoy 1.37 and later starts no more threads than the CPU limit has whole CPUs.
	args = append(args, "--concurrency", strconv.Itoa(cmp.Or(o.Concurrency, runtime.NumCPU())))
	if o.FlushKB > 0 {
		args = append(args, "--file-flush-min-size-kb", strconv.FormatUint(uint64(o.FlushKB), 10))
	}
	return append(args, o.ExtraArgs...)
}

func ipVersion(six bool) string {
	if six {
		return "v6"
	}
	return "v4"
}

// Process is a running Envoy.
type Process struct {
	process *os.Process
	done    chan struct{}
	err     error // written before done is closed
}

// Start starts Envoy in its own process group, so that Ctrl-C at a terminal reaches only its parent, which drains it.
// On Linux the kernel kills Envoy when the parent dies.
func Start(o Options) (*Process, error) {
	// No context: Stop and Kill end the process.
	cmd := exec.Command(o.Path, o.args()...) //nolint:noctx // see above
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Stdout, cmd.Stderr = o.Output, o.Output
	if o.Stdout != nil {
		cmd.Stdout = struct{ io.Writer }{o.Stdout} // a pipe even for a file: see giveOutput
	}
	cmd.SysProcAttr = processAttributes(o.User)
	cmd.WaitDelay = time.Second // children may hold the output open

	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the thread that forked ends, so that thread is locked until the
		// child's end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("cannot start Envoy: %w", err)
			return
		}
		p.process = cmd.Process
		giveOutput(p.process.Pid, o.User)
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.process.Pid }

// Done is closed when the process has ended and its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended, after Done is closed: nil for exit status 0.
func (p *Process) Err() error { return p.err }

// Signal sends a signal. A process that has ended is not an error.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Stop sends SIGTERM, and kills the process after grace. It waits for the end. killed reports whether it had to kill.
func (p *Process) Stop(grace time.Duration) (killed bool) {
	_ = p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return false
	case <-timer.C:
	}
	p.Kill()
	return true
}

// Kill kills the process and waits for its end.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Ending describes how a process ended: "exit status 1", "signal: killed".
func Ending(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
