package propagation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// Peer is another control plane that is measured in the same run, in turn with ours: on each
// mesh, first ours and then the peer. Both read the API server. It runs already.
type Peer struct {
	Name    string // "istiod"
	Address string // of its xDS in plaintext
	PID     int    // 0: not known; then its CPU time and memory are not, and it works on while ours is measured
}

// PeerReport is what the peer was measured to take, by the same scenarios.
type PeerReport struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	Results []Result `json:"results"`
	Stopped string   `json:"stopped,omitempty"` // why there is no more, where it ended early
}

// runPeer runs scenarios on one mesh with the peer. What fails there is told in its report
// and ends nothing but it.
func runPeer(ctx context.Context, o *Options, dir string, shape meshfiles.Shape, list []Scenario, report *Report) {
	list = slices.DeleteFunc(slices.Clone(list), func(s Scenario) bool { return s.needsOurs() })
	if o.Peer == nil || report.Peer.Stopped != "" || len(list) == 0 {
		return
	}
	its, found := *o, &Report{}
	its.Target, its.TargetPID, its.Peer = o.Peer.Address, o.Peer.PID, nil
	if err := runMesh(ctx, &its, filepath.Join(dir, "peer"), shape, list, found); err != nil {
		report.Peer.Stopped = err.Error()
	}
	report.Peer.Results = append(report.Peer.Results, found.Results...)
}

// pause stops the peer's process for as long as ours is measured, as it reads the same API
// server and would work on the same changes. Its watches catch up, or list again, after.
func (p *Peer) pause() (resume func(), err error) {
	return p.signal("pause", syscall.SIGSTOP, syscall.SIGCONT)
}

// wake lets the paused process work until sleep is called. It is for one measurement.
func (p *Peer) wake() (sleep func(), err error) {
	return p.signal("wake", syscall.SIGCONT, syscall.SIGSTOP)
}

// signal sends the peer's process a signal, and another one when undo is called. Without a process
// that is known it does nothing.
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
	return func() { _ = process.Signal(then) }, nil // it has ended, if it cannot be
}

// Pair is one scenario on one mesh, measured with ours and with the peer.
type Pair struct{ Ours, Peer *Result }

// Pairs are the scenarios that were measured with both, in order.
func (r *Report) Pairs() (out []Pair) {
	if r.Peer == nil {
		return nil
	}
	for i := range r.Results {
		a := &r.Results[i]
		for j := range r.Peer.Results {
			if b := &r.Peer.Results[j]; a.Scenario == b.Scenario && a.MeshName() == b.MeshName() {
				out = append(out, Pair{a, b})
			}
		}
	}
	return out
}

// PairRow is one quantity of a pair, for people.
type PairRow struct {
	What       string
	Ours, Peer float64
	Unit       string
}

// Times is how many times less ours takes; 0: it cannot be told.
func (p PairRow) Times() float64 { return ratio(p.Peer, p.Ours) }

// Rows are the quantities that were measured with both.
func (p Pair) Rows() (out []PairRow) {
	add := func(what, unit string, ours, peer float64) {
		if ours > 0 && peer > 0 {
			out = append(out, PairRow{what, ours, peer, unit})
		}
	}
	a, b := &p.Ours.Subject, &p.Peer.Subject
	add("last proxy's ACK, p50", "ms", a.Last.P50, b.Last.P50)
	add("a proxy's ACK, p99", "ms", a.Proxies.P99, b.Proxies.P99)
	add("CPU a change, p50", "ms", a.CPU.P50, b.CPU.P50)
	add("to a concerned proxy", "B", a.Concerned.Bytes, b.Concerned.Bytes)
	add("peak memory", "MB", float64(a.PeakRSS>>20), float64(b.PeakRSS>>20))
	return out
}
