package propagation

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// newStormTwin writes what the floor's storms from an API server change: as many services, aside. It returns when the
// control plane is quiet again, which reads them, too. nil: the source is a directory.
func (s *session) newStormTwin(ctx context.Context) (*meshfiles.Mesh, error) {
	if s.place.cluster == nil {
		return nil, nil //nolint:nilnil // files are there when they are written
	}
	twin, err := s.mesh.StormTwin()
	if err != nil {
		return nil, err
	}
	return twin, s.cp.quiet(ctx)
}

// endStormTwin takes it away. Where a storm has failed the session's end does.
func (s *session) endStormTwin(ctx context.Context, twin *meshfiles.Mesh) error {
	if twin == nil {
		return nil
	}
	return errors.Join(twin.RemoveServices(), s.cp.quiet(ctx))
}

// floorStorm is the floor's storm. read is the control plane's CPU time for twins, in milliseconds; it is quiet
// again when floorStorm returns, so that it has nothing to do with them in a storm of its own.
func (s *session) floorStorm(ctx context.Context, twin *meshfiles.Mesh, services []int) (sample Sample, read float64, err error) {
	wants := s.floor.stormWants(services)
	if twin == nil {
		sample, err = s.floor.measure(ctx, wants, func() error { return s.floor.storm(ctx, services) })
		return sample, 0, err
	}
	e, err := s.newStormEcho(ctx, twin, services)
	if err != nil {
		return sample, 0, err
	}
	defer e.stop()
	before := s.cp.cpu()
	if sample, err = s.floor.measure(ctx, wants, func() error { return e.run(ctx) }); err != nil {
		return sample, 0, err
	}
	err = s.cp.quiet(ctx)
	return sample, millis(s.cp.cpu() - before), err
}

// stormEcho is a storm of twins that is ready, and what is to happen when they are heard of.
type stormEcho struct {
	events int
	write  func(context.Context) error           // makes the storm of twins
	next   func(context.Context) (string, error) // waits for the next of them that a watch tells, and gives its service
	files  map[string][]func() error             // by service: they put the floor's files into their places, in their order
	stop   func()
}

// newStormEcho prepares all that can be: while the time runs nothing is parsed or encoded to be a file, and
// the watch is there.
func (s *session) newStormEcho(ctx context.Context, twin *meshfiles.Mesh, services []int) (*stormEcho, error) {
	e := &stormEcho{events: len(services), files: map[string][]func() error{}}
	for _, i := range services {
		_, apply, err := s.floor.prepare(i, stormBytes)
		if err != nil {
			return nil, err
		}
		e.files[twin.Service(i)] = append(e.files[twin.Service(i)], apply)
	}
	var err error
	if e.write, err = s.place.storm(twin, services); err != nil {
		return nil, err
	}
	hearing, err := s.place.cluster.HearSlices(ctx, meshfiles.Aside)
	if err != nil {
		return nil, err
	}
	e.next, e.stop = hearing.Next, hearing.Stop
	return e, nil
}

// run makes the storm of twins, and with each that is told of the floor's event.
func (e *stormEcho) run(ctx context.Context) error {
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return e.write(ctx) })
	both.Go(func() error { return e.hear(ctx) })
	return both.Wait()
}

func (e *stormEcho) hear(ctx context.Context) error {
	for range e.events {
		service, err := e.next(ctx)
		if err != nil {
			return err
		}
		rest := e.files[service]
		if len(rest) == 0 {
			return fmt.Errorf("the API server tells of a change of %q that was not made", service)
		}
		if err := rest[0](); err != nil {
			return err
		}
		e.files[service] = rest[1:]
	}
	return nil
}
