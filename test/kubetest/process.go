package kubetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// patience is the time limit of conditions, long enough for a busy machine.
const patience = 2 * time.Minute

// startPatience is the time limit of an API server's start, which takes half a minute of CPU time.
const startPatience = 5 * time.Minute

// modulePath distinguishes this repository's root from other modules.
const modulePath = "module github.com/moonsail/moonsail\n"

// Binary returns the API server that `make kube-build` has built.
func Binary() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil || !bytes.HasPrefix(mod, []byte(modulePath)) {
			continue
		}
		path := filepath.Join(dir, ".tools", "kube", "kube")
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("no Kubernetes API server to test with: run `make kube-build` (once, some minutes): %w", err)
		}
		return path, nil
	}
	return "", errors.New("not in a checkout of Moonsail: run the test from there")
}

// process is one run of the binary.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer // the process ends when it is closed, thus with its parent too
	first chan string
	done  chan struct{} // is closed when the process has ended

	mu     sync.Mutex // guards output
	output strings.Builder
	err    error // how it ended; read it after done
}

func startProcess(args ...string) (*process, error) {
	bin, err := Binary()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(bin, append(args, "--until-eof")...), first: make(chan string, 1), done: make(chan struct{})}
	p.cmd.SysProcAttr = attributes()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	go p.attend(r)
	return p, nil
}

// attend reads what the process prints until it has ended. It sends the line that reports that the process is ready.
func (p *process) attend(r *os.File) {
	defer close(p.done)
	defer r.Close()
	for s := bufio.NewScanner(r); s.Scan(); {
		p.mu.Lock()
		p.output.WriteString(s.Text() + "\n")
		p.mu.Unlock()
		if strings.HasPrefix(s.Text(), "ready ") && len(p.first) == 0 {
			p.first <- s.Text()
		}
	}
	p.err = p.cmd.Wait()
}

// said returns what the process has printed so far.
func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// waitReady waits until the process reports that it is ready, and returns the values of that line.
func (p *process) waitReady() (map[string]string, error) {
	timeout := time.NewTimer(startPatience)
	defer timeout.Stop()
	select {
	case line := <-p.first:
		said := map[string]string{}
		for _, word := range strings.Fields(line) {
			if name, value, ok := strings.Cut(word, "="); ok {
				said[name] = value
			}
		}
		return said, nil
	case <-p.done:
		return nil, fmt.Errorf("the Kubernetes API server has ended (%w); its output:\n%s", p.err, p.said())
	case <-timeout.C:
		return nil, fmt.Errorf("the Kubernetes API server is not ready after %s; its output:\n%s", startPatience, p.said())
	}
}

// kill ends the process at once, even a stopped one, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
	p.stdin.Close()
}
