package propagation

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
)

// newStormShadow writes the services that the baseline's storms change in an API server, in a namespace without
// proxies. It returns when the control plane, which reads them too, is idle again. It returns nil with a directory.
func (s *meshSession) newStormShadow(ctx context.Context) (*meshfiles.Mesh, error) {
	if s.Location.Cluster == nil {
		return nil, nil //nolint:nilnil // a written file can be read at once
	}
	shadow, err := s.Mesh.StormShadow()
	if err != nil {
		return nil, err
	}
	return shadow, s.CP.Quiet(ctx)
}

// endStormShadow removes the shadow. After a failed storm the end of the session removes it.
func (s *meshSession) endStormShadow(ctx context.Context, shadow *meshfiles.Mesh) error {
	if shadow == nil {
		return nil
	}
	return errors.Join(shadow.RemoveServices(), s.CP.Quiet(ctx))
}

// baselineStorm measures the baseline's storm. read is the control plane's CPU time for shadows in milliseconds. The
// control plane is idle again when baselineStorm returns.
func (s *meshSession) baselineStorm(ctx context.Context, shadow *meshfiles.Mesh, services []int) (sample results.Sample, read float64, err error) {
	wants := lastWants(s.Baseline, services)
	if shadow == nil {
		sample, err = s.Baseline.Measure(ctx, wants, func() error { return baselineFiles(ctx, s.Baseline, services) })
		return sample, 0, err
	}
	e, err := s.newStormEcho(ctx, shadow, services)
	if err != nil {
		return sample, 0, err
	}
	defer e.stop()
	before := s.CP.CPU()
	if sample, err = s.Baseline.Measure(ctx, wants, func() error { return e.run(ctx) }); err != nil {
		return sample, 0, err
	}
	err = s.CP.Quiet(ctx)
	return sample, results.Millis(s.CP.CPU() - before), err
}

// stormEcho is a prepared storm of shadows, with the baseline's files that are renamed for its events.
type stormEcho struct {
	events int
	write  func(context.Context) error           // starts the storm of shadows
	next   func(context.Context) (string, error) // waits for the watch's next event and returns its service
	files  map[string][]func() error             // by service: functions that rename the baseline's files, in order
	stop   func()
}

// newStormEcho prepares the storm and starts the watch, so that the measured time includes no parsing or encoding
// of files.
func (s *meshSession) newStormEcho(ctx context.Context, shadow *meshfiles.Mesh, services []int) (*stormEcho, error) {
	e := &stormEcho{events: len(services), files: map[string][]func() error{}}
	for _, i := range services {
		_, apply, err := s.Baseline.Prepare(i, stormBytes)
		if err != nil {
			return nil, err
		}
		e.files[shadow.Service(i)] = append(e.files[shadow.Service(i)], apply)
	}
	var err error
	if e.write, err = prepareEvents(&s.Location, shadow, services); err != nil {
		return nil, err
	}
	hearing, err := s.Location.Cluster.HearSlices(ctx, meshfiles.Aside)
	if err != nil {
		return nil, err
	}
	e.next, e.stop = hearing.Next, hearing.Stop
	return e, nil
}

// run starts the storm of shadows and renames a file of the baseline for each event of the watch.
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
			return fmt.Errorf("unexpected event of the API server for %q", service)
		}
		if err := rest[0](); err != nil {
			return err
		}
		e.files[service] = rest[1:]
	}
	return nil
}
