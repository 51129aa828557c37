package propagation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// The storm.
const (
	stormLimit    = 1.5 // x floor
	stormRSSLimit = 2.0 // x idle
	stormRepeats  = 3
	stormBytes    = 450 // of the floor's resources: those of small endpoints
)

// storm changes endpoints as fast as the source takes it, and measures until every proxy has the final
// state of every service; in turn with the floor, which gets as many events in as many files: at once, or, where
// the source is an API server, when that has told of their twins.
//
// What is in the time is alike on both sides. Of files: each is written and renamed, for ours and for the floor.
// Of an API server: all is prepared before (parsed, and the floor's files written). Then as many writers
// make as many requests for objects of the same size, in the same order; the control plane hears of them by its watch, and
// the floor by the lab's, which renames a file for each. Only the control plane reads the twins, too, while the floor's
// storm goes on, as it reads all there is: the result's note says for how much CPU time.
func storm(ctx context.Context, s *session) (*Result, error) {
	before := s.cp.memory().RSS // as it is without twins
	twin, err := s.newStormTwin(ctx)
	if err != nil {
		return nil, err
	}
	var cp, base []Sample
	var reads []float64
	var idle, peak int64
	for n := range stormRepeats {
		services := stormOrder(n, s.opts.StormEvents, s.mesh.Services)
		if n > 0 {
			before = s.cp.memory().RSS
		}
		sample, after, err := s.meshStorm(ctx, services)
		if err != nil {
			return nil, err
		}
		if idle == 0 || ratio(float64(after), float64(before)) > ratio(float64(peak), float64(idle)) {
			idle, peak = before, after
		}
		beside, read, err := s.floorStorm(ctx, twin, services)
		if err != nil {
			return nil, err
		}
		cp, base, reads = append(cp, sample), append(base, beside), append(reads, read)
	}
	floorSide := sideOf(base)
	r := &Result{Subject: sideOf(cp), Floor: &floorSide, Note: fmt.Sprintf("%d events over %d services, %d times", s.opts.StormEvents, s.mesh.Services, stormRepeats)}
	if twin != nil {
		r.Note += fmt.Sprintf("; the floor hears of each from the API server, while the control plane reads the same for %.0f ms of CPU", Median(reads))
	}
	r.Subject.IdleRSS, r.Subject.PeakRSS = idle, peak
	r.barOver("final state at every proxy / floor", last, base, stormLimit)
	if idle > 0 {
		r.bar("peak RSS / idle", ratio(float64(peak), float64(idle)), stormRSSLimit, "x")
	}
	return r, s.endStormTwin(ctx, twin)
}

// meshStorm is the control plane's storm; peak is its memory's in that time.
func (s *session) meshStorm(ctx context.Context, services []int) (sample Sample, peak int64, err error) {
	measure, err := s.prepareStorm(services)
	if err != nil {
		return sample, 0, err
	}
	if s.cp.pid != 0 {
		child.ResetPeak(s.cp.pid)
	}
	sample, err = measure(ctx)
	return sample, s.cp.memory().Peak, err
}

// prepareStorm prepares the control plane's storm; measure makes it happen.
func (s *session) prepareStorm(services []int) (measure func(context.Context) (Sample, error), err error) {
	wants := s.mesh.StormWants(services) // before its changes are prepared
	apply, err := s.place.storm(s.mesh, services)
	return func(ctx context.Context) (Sample, error) {
		return s.cp.measure(ctx, wants, func() error { return apply(ctx) })
	}, err
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

// stormEvent is a change of a service that is ready to happen.
type stormEvent struct {
	service int
	apply   func() error
}

// storm prepares a storm of a mesh's endpoints and returns what makes it happen. In a directory the next file of
// a service can be prepared only when the last has been renamed: nothing is prepared there.
func (p *place) storm(m *meshfiles.Mesh, services []int) (func(context.Context) error, error) {
	if p.writers == 0 {
		return func(ctx context.Context) error { return replaceEach(ctx, m, services) }, nil
	}
	var events []stormEvent
	for _, i := range services {
		c, err := m.ReplaceEndpoint(i)
		if err != nil {
			return nil, err
		}
		events = append(events, stormEvent{i, c.Apply})
	}
	return func(ctx context.Context) error { return p.write(ctx, events) }, nil
}

// replaceEach makes a storm of files, in one go after the other.
func replaceEach(ctx context.Context, m *meshfiles.Mesh, services []int) error {
	for _, i := range services {
		c, err := m.ReplaceEndpoint(i)
		if err == nil {
			err = errors.Join(c.Apply(), ctx.Err())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write makes a storm with as many writers as the place is good for. The changes of one service are one
// writer's, as they must stay in their order.
func (p *place) write(ctx context.Context, events []stormEvent) error {
	group, ctx := errgroup.WithContext(ctx)
	writers := make([]chan func() error, p.writers)
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
		for _, e := range events {
			select {
			case writers[e.service%len(writers)] <- e.apply:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return group.Wait()
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
