// Package child runs the processes that the lab measures. Their CPU time and memory are separate from the lab's, and
// they never outlive it.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a running server.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  io.Writer     // a copy of its log; nil: none
	done chan struct{} // closed when it has ended
	err  error         // written before done is closed

	mu      sync.Mutex // guards what follows
	addr    string     // of its streams, or requests
	http    string     // of its pages
	proxy   int        // process id of the Envoy that it runs
	tail    []string   // the last lines that it logged
	changed chan struct{}
}

const tailLines = 20

// Start runs a server that logs its addresses as `moonsail serve --log-format json` does, and waits for them. The process
// ends when Kill or Stop is called, and on Linux when its parent dies.
func Start(ctx context.Context, name string, argv ...string) (*Process, error) {
	return StartWith(ctx, name, nil, argv...)
}

// StartWith is Start with additional environment variables ("NAME=value").
func StartWith(ctx context.Context, name string, env []string, argv ...string) (*Process, error) {
	return startUntil(ctx, name, "its address", func(p *Process) bool { return p.Addr() != "" }, env, argv)
}

// StartAgent runs `moonsail agent --log-format json`, and waits until its Envoy is ready.
func StartAgent(ctx context.Context, name string, argv ...string) (*Process, error) {
	return startUntil(ctx, name, "a ready Envoy", func(p *Process) bool { return p.EnvoyPid() != 0 }, nil, argv)
}

// startUntil waits for a line of the process's log.
func startUntil(ctx context.Context, name, what string, said func(*Process) bool, env, argv []string) (*Process, error) {
	p, err := launch(name, nil, env, argv)
	if err != nil {
		return nil, err
	}
	if err := p.wait(ctx, what, said); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// Launch runs a process and does not wait until it listens. What it logs is also written to log.
func Launch(name string, log io.Writer, argv ...string) (*Process, error) {
	return launch(name, log, nil, argv)
}

func launch(name string, log io.Writer, env, argv []string) (*Process, error) {
	p := &Process{name: name, log: log, done: make(chan struct{}), changed: make(chan struct{}, 1)}
	p.cmd = exec.Command(argv[0], argv[1:]...) //nolint:noctx // it ends by Stop or Kill
	p.cmd.SysProcAttr, p.cmd.Env = Attributes(), append(os.Environ(), env...)
	p.cmd.WaitDelay = time.Second
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	return p, p.start(out)
}

func (p *Process) start(out io.Reader) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // see OnThread
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.read(out)
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	return nil
}

// OnThread runs a function that starts a process and waits for its end, on a thread that does not end before. The kernel
// sends the parent-death signal when the thread that forked ends.
func OnThread(run func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- run()
	}()
	return <-ended
}

// read reads the log until its end.
func (p *Process) read(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		p.line(s.Text())
		if p.log != nil {
			_, _ = io.WriteString(p.log, s.Text()+"\n") // without the copy the run goes on
		}
	}
}

func (p *Process) line(text string) {
	var rec struct {
		Msg, Addr, URL string
		Pid            int
	}
	_ = json.Unmarshal([]byte(text), &rec) // other lines have none of these
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case rec.Addr != "" && (strings.HasPrefix(rec.Msg, "serving xDS") || rec.Msg == "serving requests"):
		p.addr = rec.Addr
	case rec.Pid != 0 && (rec.Msg == "sidecar ready" || rec.Msg == "gateway ready"):
		p.proxy = rec.Pid
	case rec.URL != "" && strings.HasPrefix(rec.Msg, "serving metrics"):
		if u, err := url.Parse(rec.URL); err == nil {
			p.http = u.Host
		}
	}
	if p.tail = append(p.tail, text); len(p.tail) > tailLines {
		p.tail = p.tail[1:]
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// startTime bounds how long a server may take to listen.
const startTime = 60 * time.Second

func (p *Process) wait(ctx context.Context, what string, said func(*Process) bool) error {
	timer := time.NewTimer(startTime)
	defer timer.Stop()
	for {
		if said(p) {
			return nil
		}
		select {
		case <-p.changed:
		case <-p.done:
			return p.Ended()
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return fmt.Errorf("%[1]s: did not log %[3]s within %[2]s:\n%[4]s", p.name, startTime, what, p.Tail())
		}
	}
}

// Ended returns the error with which the process ended.
func (p *Process) Ended() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s: ended (%s):\n%s", p.name, how, p.Tail())
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// EnvoyPid is the process id of the Envoy that an agent runs; 0 until that is ready.
func (p *Process) EnvoyPid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proxy
}

// Addr returns the address of its streams.
func (p *Process) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// HTTP returns the address of its pages; empty: it has none.
func (p *Process) HTTP() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.http
}

// Tail returns the last lines of its log.
func (p *Process) Tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.tail, "\n")
}

// Kill ends the process at once.
func (p *Process) Kill() {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return
	}
	<-p.done
}

// Stop ends the process with SIGTERM, and kills it after grace.
func (p *Process) Stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Kill()
	}
}
