package controlplane

import (
	"context"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/agents"
	"github.com/moonsail/moonsail/internal/controlplane/tracing"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// newTraces makes the exporter of traces, if a collector is configured. run is the exporter's goroutine.
func newTraces(ctx context.Context, o Options, changes *changelog.Log, m *changelog.Metrics) (run func(context.Context), err error) {
	if !o.Traces.On() {
		return func(context.Context) {}, nil
	}
	e, err := tracing.New(ctx, o.Traces, m, o.Log)
	if err != nil {
		return nil, err
	}
	changes.Tracers = append(changes.Tracers, e)
	o.Log.Info("changes are exported as traces", "to", o.Traces.String())
	return e.Run, nil
}

// newSampler makes the sampler of what is in use, if it is on. run is the sampler's goroutine.
func newSampler(o Options, changes *changelog.Log, a *agents.Client, m *changelog.Metrics) (run func(context.Context) error) {
	if o.SampleInUse <= 0 {
		return func(context.Context) error { return nil }
	}
	s := agents.NewSampler(a, o.SampleInUse, m)
	changes.Tracers = append(changes.Tracers, s)
	return func(ctx context.Context) error { s.Run(ctx); return nil }
}

// witness returns the function that gets settlements; nil if traces are off.
func witness(o Options, changes *changelog.Log) func(distribution.Settlement) {
	if !o.Traces.On() && o.SampleInUse <= 0 {
		return nil
	}
	return changes.Witness
}

// follow returns the recorders of changes: the change log, or for an experiment none.
func follow(o Options, changes *changelog.Log) (engine.ChangeRecorder, distribution.Observer) {
	if o.NoChangeLog {
		return noRecorder{}, noRecorder{}
	}
	return changes, changes
}

// noRecorder records nothing.
type noRecorder struct{}

func (noRecorder) Begin(model.Revision, []changelog.ChangedObject, time.Time)              {}
func (noRecorder) Mark(model.Revision, changelog.Stage, time.Time)                         {}
func (noRecorder) Resources(model.Revision, int, int64)                                    {}
func (noRecorder) Published(model.Revision, int, time.Time)                                {}
func (noRecorder) Sent(model.Revision, time.Time)                                          {}
func (noRecorder) Settled(model.Revision, model.Revision, distribution.Outcome, time.Time) {}
