package propagation

import (
	"context"
	"slices"
)

const (
	stalledLimit  = 1.1 // x without
	stalledBlocks = 3   // of rounds, in turn without and with
)

// stalled measures endpoint changes in turn with all proxies reading and with one that
// does not, for as long as a block of rounds.
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
	defer resume()
	all := s.cp.concerned
	s.cp.concerned = slices.Clone(all)
	s.cp.concerned[0] = false
	defer func() { s.cp.concerned = all }()
	return s.endpointRounds(ctx, n)
}

// endpointRounds measures changes of endpoints, the first not counted.
func (s *session) endpointRounds(ctx context.Context, n *int) (out []Sample, err error) {
	for i := range s.opts.Rounds + 1 {
		sample, err := s.round(ctx, endpointSteps(s.mesh, *n))
		if err != nil {
			return nil, err
		}
		if *n++; i > 0 {
			out = append(out, sample)
		}
	}
	return out, nil
}
