package propagation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/fleet"
)

// The storm.
const (
	stormLimit    = 1.5 // x floor
	stormRSSLimit = 2.0 // x idle
	stormRepeats  = 3
	stormBytes    = 450 // of the floor's resources: those of small endpoints
)

// storm changes endpoints as fast as files can be renamed, and measures until every
// proxy has the final state of every service; in turn with the floor, which gets as many
// events in as many files.
func storm(ctx context.Context, s *session) (*Result, error) {
	var cp, base []Sample
	var idle, peak int64
	for n := range stormRepeats {
		services := stormOrder(n, s.opts.StormEvents, s.mesh.Services)
		before := s.cp.memory().RSS
		if s.cp.pid != 0 {
			child.ResetPeak(s.cp.pid)
		}
		sample, err := s.cp.measure(ctx, s.mesh.StormWants(services), func() error { return s.stormMesh(ctx, services) })
		if err != nil {
			return nil, err
		}
		if after := s.cp.memory().Peak; idle == 0 || ratio(float64(after), float64(before)) > ratio(float64(peak), float64(idle)) {
			idle, peak = before, after
		}
		wants := s.floor.stormWants(services)
		beside, err := s.floor.measure(ctx, wants, func() error { return s.floor.storm(ctx, services) })
		if err != nil {
			return nil, err
		}
		cp, base = append(cp, sample), append(base, beside)
	}
	floorSide := sideOf(base)
	r := &Result{Subject: sideOf(cp), Floor: &floorSide, Note: fmt.Sprintf("%d events over %d services, %d times", s.opts.StormEvents, s.mesh.Services, stormRepeats)}
	r.Subject.IdleRSS, r.Subject.PeakRSS = idle, peak
	r.barOver("final state at every proxy / floor", last, base, stormLimit)
	if idle > 0 {
		r.bar("peak RSS / idle", ratio(float64(peak), float64(idle)), stormRSSLimit, "x")
	}
	return r, nil
}

// stormOrder is which service changes when.
func stormOrder(seed, events, services int) []int {
	random := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // the same order each time
	out := make([]int, events)
	for i := range out {
		out[i] = random.IntN(services)
	}
	return out
}

// stormMesh makes the storm with as many writers as the place is good for. The changes of
// one service are one writer's, as they must stay in their order.
func (s *session) stormMesh(ctx context.Context, services []int) error {
	group, ctx := errgroup.WithContext(ctx)
	writers := make([]chan func() error, s.place.writers)
	for i := range writers {
		writers[i] = make(chan func() error)
		group.Go(func() error { return applyAll(writers[i]) })
	}
	group.Go(func() error {
		defer func() {
			for _, w := range writers {
				close(w)
			}
		}()
		for _, i := range services {
			c, err := s.mesh.ReplaceEndpoint(i)
			if err == nil {
				err = hand(ctx, writers, i, c.Apply)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// hand gives a change of a service to its writer. Without writers it happens at once: a
// directory's file must be renamed before the next is written.
func hand(ctx context.Context, writers []chan func() error, service int, apply func() error) error {
	if len(writers) == 0 {
		return errors.Join(apply(), ctx.Err())
	}
	select {
	case writers[service%len(writers)] <- apply:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func applyAll(list <-chan func() error) error {
	for apply := range list {
		if err := apply(); err != nil {
			return err
		}
	}
	return nil
}

// stormWants are the last responses of the storm.
func (f *floorServer) stormWants(services []int) (wants []fleet.Want) {
	last := map[int]int{}
	for n, i := range services {
		last[i] = f.n + 1 + n
	}
	for i, n := range last {
		wants = append(wants, floorWant(i, n))
	}
	return wants
}

func (f *floorServer) storm(ctx context.Context, services []int) error {
	for _, i := range services {
		_, apply, err := f.prepare(i, stormBytes)
		if err == nil {
			err = apply()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
