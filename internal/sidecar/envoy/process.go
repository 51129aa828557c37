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

// Options say how to start Envoy.
type Options struct {
	Path      string // the binary
	Bootstrap string // file with the bootstrap configuration

	Concurrency       int           // worker threads; 0: as many as Envoy sees cores
	DrainTime         time.Duration // of listeners that are modified or drained; whole seconds
	FlushInterval     time.Duration // of files that are written, whole milliseconds; 0: one second
	FlushKB           uint32        // they are written as soon as so much waits; 0: Envoy's 64
	LogLevel          string        // trace, debug, info, warning, error, critical, off; empty: Envoy's
	ComponentLogLevel string        // "upstream:debug,misc:error"
	LogFormat         string        // spdlog pattern; empty: Envoy's
	LocalIPv6         bool          // the local address is IPv6 ("%DOWNSTREAM_LOCAL_ADDRESS%" and the like)
	ExtraArgs         []string      // appended as they are

	Env    []string  // "name=value", beside its parent's
	Output io.Writer // Envoy's stderr, and its stdout unless that goes elsewhere
	Stdout io.Writer // nil: to Output
	User   *User     // whom it runs as; nil: as its parent does
}

// User is a user and group of this machine.
type User struct {
	UID, GID uint32
	// Transparent lets it take and make connections by others' addresses (CAP_NET_ADMIN).
	Transparent bool
}

// args are the command line's words. Hot restart is off: one process, nothing shared
// through base ids, so that any number of Envoys run on one machine.
func (o *Options) args() []string {
	args := []string{
		"--config-path", o.Bootstrap,
		"--disable-hot-restart",
		"--allow-unknown-static-fields",
		// Clients are told to go as soon as a drain begins, not with growing probability.
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
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}
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

// Start starts Envoy. It runs in a process group of its own, so that Ctrl-C at a
// terminal reaches only its parent, which can drain it; on Linux the kernel kills it
// when its parent dies, however that happens.
func Start(o Options) (*Process, error) {
	// No context: a process ends by Stop or Kill, which give it time.
	cmd := exec.Command(o.Path, o.args()...) //nolint:noctx // see above
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Stdout, cmd.Stderr = o.Output, o.Output
	if o.Stdout != nil {
		cmd.Stdout = struct{ io.Writer }{o.Stdout} // a pipe, also where it is a file of ours: see giveOutput
	}
	cmd.SysProcAttr = processAttributes(o.User)
	cmd.WaitDelay = time.Second // nobody else should hold its output open

	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the *thread* that forked ends:
		// keep that thread until the child has ended.
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

// Pid is its process id.
func (p *Process) Pid() int { return p.process.Pid }

// Done is closed when the process has ended and its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err tells, once Done is closed, how the process ended: nil for exit status 0.
func (p *Process) Err() error { return p.err }

// Signal sends a signal. It is no error if the process has ended.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Stop asks the process to end and kills it if it has not after grace. It returns when
// the process has ended; killed tells whether it had to be.
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

// Kill ends the process at once and returns when it has ended.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Ending says in words how a process ended: "exit status 1", "signal: killed".
func Ending(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
