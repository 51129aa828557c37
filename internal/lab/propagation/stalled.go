package propagation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

const (
	stalledLimit  = 1.1 // x without a stalled proxy
	stalledBlocks = 3   // of rounds, in turn without and with a stalled proxy
)

// stalled measures endpoint changes in turn while all proxies read, and while one does not. That proxy has subscribed
// to everything, and its socket stays full for a block of rounds.
func stalled(ctx context.Context, s *meshSession) (*results.Result, error) {
	var with, without []results.Sample
	n := 0
	for range stalledBlocks {
		block, err := s.endpointRounds(ctx, &n)
		if err != nil {
			return nil, err
		}
		without = append(without, block...)
		if block, err = s.stalledRounds(ctx, &n); err != nil {
			return nil, err
		}
		with = append(with, block...)
	}
	base := results.SideOf(without)
	r := &results.Result{Subject: results.SideOf(with), Note: "BASELINE: the same control plane while no proxy is stalled"}
	r.Baseline = &base
	r.AddTarget("p99 of the others / without", results.Ratio(r.Subject.Proxies.P99, base.Proxies.P99), stalledLimit, "x")
	return r, nil
}

func (s *meshSession) stalledRounds(ctx context.Context, n *int) ([]results.Sample, error) {
	resume := s.CP.Fleet.Stall(0)
	all := s.CP.Concerned
	s.CP.Concerned = slices.Clone(all)
	s.CP.Concerned[0] = false
	defer func() { s.CP.Concerned = all }()
	samples, err := s.fullSocketRounds(ctx, n)
	resume()
	if err != nil {
		return nil, err
	}
	return samples, s.poll(ctx, "the stalled proxy has received everything", func() (bool, error) { return s.CP.Fleet.Proxies[0].Ready(), nil })
}

// fullSocketRounds measures rounds while the control plane cannot send to a proxy. The socket must be full before
// and after them.
func (s *meshSession) fullSocketRounds(ctx context.Context, n *int) ([]results.Sample, error) {
	full := func() (bool, error) { return child.Unsent(s.CP.Address(), s.CP.Fleet.Proxies[0].Socket()) }
	if err := s.poll(ctx, "the stalled proxy's socket is full", full); err != nil {
		return nil, fmt.Errorf("%w: use a mesh with at least 100 services", err)
	}
	samples, err := s.endpointRounds(ctx, n)
	if err != nil {
		return nil, err
	}
	return samples, s.poll(ctx, "the stalled proxy's socket is still full", full)
}

// poll waits until a condition holds.
func (s *meshSession) poll(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, session.FreshTime, fmt.Errorf("%s: waited %[3]s in vain until %[2]s", s.CP.Name, what, session.FreshTime))
	defer cancel()
	tick := time.NewTicker(session.ReadyPoll)
	defer tick.Stop()
	for {
		if ok, err := is(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endpointRounds measures changes of endpoints. The first one is a warm-up.
func (s *meshSession) endpointRounds(ctx context.Context, n *int) (out []results.Sample, err error) {
	for i := range s.opts.Rounds + 1 {
		sample, err := s.round(ctx, endpointSteps(s.Mesh, *n), nil)
		if err != nil {
			return nil, err
		}
		if *n++; i > 0 {
			out = append(out, sample)
		}
	}
	return out, nil
}
