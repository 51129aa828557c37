package session

import (
	"fmt"
	"os"
	"syscall"
)

// Peer is another control plane that is measured in the same run: on each mesh after ours. Both read the same API
// server. The lab does not start it.
type Peer struct {
	Name    string // "istiod"
	Address string // of its xDS in plain text
	PID     int    // 0: unknown; then its CPU time and memory are not measured, and it is not paused while ours is measured
}

// Pause stops the peer's process while ours is measured, because both read the same API server and the peer would
// use CPU time for the same changes. Its watches catch up, or list again, afterwards.
func (p *Peer) Pause() (resume func(), err error) {
	return p.signal("pause", syscall.SIGSTOP, syscall.SIGCONT)
}

// Wake resumes the paused process for one measurement, until sleep is called.
func (p *Peer) Wake() (sleep func(), err error) {
	return p.signal("wake", syscall.SIGCONT, syscall.SIGSTOP)
}

// signal sends a signal to the peer's process, and another one when undo is called. It does nothing if the process
// is unknown.
func (p *Peer) signal(what string, now, then syscall.Signal) (undo func(), err error) {
	if p == nil || p.PID == 0 {
		return func() {}, nil
	}
	process, err := os.FindProcess(p.PID)
	if err == nil {
		err = process.Signal(now)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot %s %s, process %d: %w", what, p.Name, p.PID, err)
	}
	return func() { _ = process.Signal(then) }, nil // fails only if the process has ended
}
