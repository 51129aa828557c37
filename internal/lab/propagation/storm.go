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
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// The storm.
const (
	stormLimit    = 1.5 // x baseline
	stormRSSLimit = 2.0 // x idle
	stormRepeats  = 3
	stormBytes    = 450 // size of the baseline's resources: that of small endpoints
)

// storm changes endpoints as fast as the source accepts changes, and measures until every proxy has the final state
// of every service. The baseline is measured in turn, with as many events in as many files.
//
// The measured time includes the same work on both sides:
//   - With files, each is written and renamed, for ours and for the baseline.
//   - With an API server, all events are prepared before. As many writers then send as many requests, for objects of
//     the same size and in the same order. The control plane learns of them from its watch; for the baseline, the
//     lab watches the shadows and renames a file for each. During the baseline's storm the control plane also reads
//     the shadows, because it reads every namespace: the note of the result has the CPU time of that.
func storm(ctx context.Context, s *meshSession) (*results.Result, error) {
	before := s.CP.Memory().RSS // the memory without shadows
	shadow, err := s.newStormShadow(ctx)
	if err != nil {
		return nil, err
	}
	var cp, base []results.Sample
	var reads []float64
	var idle, peak int64
	for n := range stormRepeats {
		services := stormOrder(n, s.opts.StormEvents, s.Mesh.Services)
		if n > 0 {
			before = s.CP.Memory().RSS
		}
		sample, after, err := s.meshStorm(ctx, services)
		if err != nil {
			return nil, err
		}
		if idle == 0 || results.Ratio(float64(after), float64(before)) > results.Ratio(float64(peak), float64(idle)) {
			idle, peak = before, after
		}
		beside, read, err := s.baselineStorm(ctx, shadow, services)
		if err != nil {
			return nil, err
		}
		cp, base, reads = append(cp, sample), append(base, beside), append(reads, read)
	}
	baselineSide := results.SideOf(base)
	r := &results.Result{Subject: results.SideOf(cp), Baseline: &baselineSide, Note: fmt.Sprintf("%d events over %d services, %d times", s.opts.StormEvents, s.Mesh.Services, stormRepeats)}
	if shadow != nil {
		r.Note += fmt.Sprintf("; the baseline waits for each event of the API server, while the control plane uses %.0f ms of CPU time for the same events", results.Median(reads))
	}
	r.Subject.IdleRSS, r.Subject.PeakRSS = idle, peak
	r.AddRatioTarget("final state at every proxy / baseline", results.LastOf, base, stormLimit)
	if idle > 0 {
		r.AddTarget("peak RSS / idle", results.Ratio(float64(peak), float64(idle)), stormRSSLimit, "x")
	}
	return r, s.endStormShadow(ctx, shadow)
}

// meshStorm measures the control plane's storm and its peak of memory.
func (s *meshSession) meshStorm(ctx context.Context, services []int) (sample results.Sample, peak int64, err error) {
	measure, err := s.prepareStorm(services)
	if err != nil {
		return sample, 0, err
	}
	if s.CP.PID != 0 {
		child.ResetPeak(s.CP.PID)
	}
	sample, err = measure(ctx)
	return sample, s.CP.Memory().Peak, err
}

// prepareStorm prepares the control plane's storm; measure starts and measures it.
func (s *meshSession) prepareStorm(services []int) (measure func(context.Context) (results.Sample, error), err error) {
	wants := s.Mesh.StormWants(services) // before the changes are prepared
	apply, err := prepareEvents(&s.Location, s.Mesh, services)
	return func(ctx context.Context) (results.Sample, error) {
		return s.CP.Measure(ctx, wants, func() error { return apply(ctx) })
	}, err
}

// stormOrder returns the service of each event.
func stormOrder(seed, events, services int) []int {
	random := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // the same order each time
	out := make([]int, events)
	for i := range out {
		out[i] = random.IntN(services)
	}
	return out
}

// stormEvent is a prepared change of a service.
type stormEvent struct {
	service int
	apply   func() error
}

// prepareEvents prepares a storm of a mesh's endpoints and returns a function that starts it. With a directory nothing is
// prepared: a service's next file can be written only after the last one was renamed.
func prepareEvents(p *session.Location, m *meshfiles.Mesh, services []int) (func(context.Context) error, error) {
	if p.Writers == 0 {
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
	return func(ctx context.Context) error { return writeAll(ctx, p.Writers, events) }, nil
}

// replaceEach makes a storm of files, one after the other.
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

// writeAll makes a storm with n writers. One writer makes all changes of a service, to keep their order.
func writeAll(ctx context.Context, n int, events []stormEvent) error {
	group, ctx := errgroup.WithContext(ctx)
	writers := make([]chan func() error, n)
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

// lastWants returns the last response for each service of the storm.
func lastWants(f *session.BaselineServer, services []int) (wants []fleet.Want) {
	last := map[int]int{}
	for n, i := range services {
		last[i] = f.Count + 1 + n
	}
	for i, n := range last {
		wants = append(wants, session.BaselineWant(i, n))
	}
	return wants
}

// baselineFiles writes a file of the baseline for each event.
func baselineFiles(ctx context.Context, f *session.BaselineServer, services []int) error {
	for _, i := range services {
		_, apply, err := f.Prepare(i, stormBytes)
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
