package propagation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
)

const (
	stalledLimit  = 1.1 // x without
	stalledBlocks = 3   // of rounds, in turn without and with
)

// stalled measures endpoint changes in turn with all proxies reading and with one that
// does not: it has asked for everything, and its socket is full for as long as a block of rounds.
func stalled(ctx context.Context, s *session) (*Result, error) {
	var with, without []Sample
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
	base := sideOf(without)
	r := &Result{Subject: sideOf(with), Note: "FLOOR is the same control plane while no proxy is stalled"}
	r.Floor = &base
	r.bar("p99 of the others / without", ratio(r.Subject.Proxies.P99, base.Proxies.P99), stalledLimit, "x")
	return r, nil
}

func (s *session) stalledRounds(ctx context.Context, n *int) ([]Sample, error) {
	resume := s.cp.fleet.Stall(0)
	all := s.cp.concerned
	s.cp.concerned = slices.Clone(all)
	s.cp.concerned[0] = false
	defer func() { s.cp.concerned = all }()
	samples, err := s.fullSocketRounds(ctx, n)
	resume()
	if err != nil {
		return nil, err
	}
	return samples, s.poll(ctx, "the proxy that was stalled has everything", func() (bool, error) { return s.cp.fleet.Proxies[0].Ready(), nil })
}

// fullSocketRounds are those of a control plane that cannot send to a proxy, which it must have
// noticed before and must not have forgotten after them.
func (s *session) fullSocketRounds(ctx context.Context, n *int) ([]Sample, error) {
	full := func() (bool, error) { return child.Unsent(s.cp.address(), s.cp.fleet.Proxies[0].Socket()) }
	if err := s.poll(ctx, "the stalled proxy's socket is full", full); err != nil {
		return nil, fmt.Errorf("%w: a mesh of few services does not fill it, 100 are enough", err)
	}
	samples, err := s.endpointRounds(ctx, n)
	if err != nil {
		return nil, err
	}
	return samples, s.poll(ctx, "the stalled proxy's socket is full still", full)
}

// poll waits until something is so.
func (s *session) poll(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freshTime, fmt.Errorf("%s: waited for that %s, and it is not so after %s", s.cp.name, what, freshTime))
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if so, err := is(); so || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endpointRounds measures changes of endpoints, the first not counted.
func (s *session) endpointRounds(ctx context.Context, n *int) (out []Sample, err error) {
	for i := range s.opts.Rounds + 1 {
		sample, err := s.round(ctx, endpointSteps(s.mesh, *n), nil)
		if err != nil {
			return nil, err
		}
		if *n++; i > 0 {
			out = append(out, sample)
		}
	}
	return out, nil
}
