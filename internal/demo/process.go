package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// spawner starts processes from one thread that lives as long as the spawner. On Linux the
// kernel kills each child when this thread ends, for whatever reason, so no
// process outlives the demo. Each child has its own process group, so Ctrl-C
// at a terminal reaches only the demo, which ends its children in order.
type spawner struct {
	binary string
	dir    string // working directory of processes
	logs   string // directory of their logs
	calls  chan func()
	ended  chan struct{}
}

func newSpawner(binary, dir string) (*spawner, error) {
	logs := filepath.Join(dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	s := &spawner{binary: binary, dir: dir, logs: logs, calls: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for call := range s.calls {
			call()
		}
	}()
	return s, nil
}

// close ends the thread. All processes must have ended.
func (s *spawner) close() {
	close(s.calls)
	<-s.ended
}

// process is a running child.
type process struct {
	name string
	log  string // path
	cmd  *exec.Cmd
	done chan struct{}
	err  error // its exit status; written before done is closed

	expected atomic.Bool // the demo has asked it to end
}

// start starts moonsail with args. Its output goes to a log file with this name.
func (s *spawner) start(name string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(s.logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()                      // the child has its own descriptor
	cmd := exec.Command(s.binary, args...) //nolint:noctx // stop or kill ends it, in order
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.SysProcAttr = processAttributes()
	p := &process{name: name, log: log.Name(), cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	s.calls <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: cannot start: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) signal(sig os.Signal) {
	p.expected.Store(true)
	_ = p.cmd.Process.Signal(sig) // it may have ended already
}

// kill kills the process, and returns when it has ended.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop asks the process to end, by ask or SIGTERM, and kills it after stopTimeout.
func (p *process) stop(ask func() error) {
	p.expected.Store(true)
	if ask == nil || ask() != nil {
		p.signal(syscall.SIGTERM)
	}
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.kill()
	}
}

// crash returns the error for a process that ended unexpectedly, with the end of its log.
func (p *process) crash() error {
	ending := "exit status 0"
	if p.err != nil {
		ending = p.err.Error()
	}
	return fmt.Errorf("%s: ended unexpectedly (%s): its log %s ends with\n%s", p.name, ending, p.log, tail(p.log))
}

const (
	tailLines = 15
	tailBytes = 8 << 10
)

// tail returns the end of a log, indented.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "    " + err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		_, _ = f.Seek(-tailBytes, io.SeekEnd) // on failure the beginning is read
	}
	content, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil && !errors.Is(err, io.EOF) {
		return "    " + err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-tailLines):], "\n    ")
}
