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

// addTraces makes the exporter of traces. Without a collector it does nothing.
func (p *parts) addTraces(ctx context.Context) error {
	o := &p.opts
	p.exportTraces = func(context.Context) {}
	if !o.Traces.On() {
		return nil
	}
	e, err := tracing.New(ctx, o.Traces, p.metrics, o.Log)
	if err != nil {
		return err
	}
	p.exportTraces = e.Run
	p.changes.Tracers = append(p.changes.Tracers, e)
	o.Log.Info("changes are exported as traces", "to", o.Traces.String())
	return nil
}

// addSampler makes the sampler of what proxies use, if it is on.
func (p *parts) addSampler() {
	if p.opts.SampleInUse <= 0 {
		return
	}
	p.sampler = agents.NewSampler(p.agents, p.opts.SampleInUse, p.metrics)
	p.changes.Tracers = append(p.changes.Tracers, p.sampler)
}

// settlements returns the function that receives what proxies settle; nil: nothing needs it.
func (p *parts) settlements() func(distribution.Settlement) {
	if !p.opts.Traces.On() && p.opts.SampleInUse <= 0 {
		return nil
	}
	return p.changes.RecordSettlement
}

// recorders returns what records changes in the pipeline and at the xDS server: the change log, or for an experiment
// nothing.
func (p *parts) recorders() (engine.ChangeRecorder, distribution.Observer) {
	if p.opts.NoChangeLog {
		return noRecorder{}, noRecorder{}
	}
	return p.changes, p.changes
}

// noRecorder records nothing.
type noRecorder struct{}

func (noRecorder) Begin(model.Revision, []changelog.ChangedObject, time.Time)              {}
func (noRecorder) Mark(model.Revision, changelog.Stage, time.Time)                         {}
func (noRecorder) Resources(model.Revision, int, int64)                                    {}
func (noRecorder) Published(model.Revision, int, time.Time)                                {}
func (noRecorder) Sent(model.Revision, time.Time)                                          {}
func (noRecorder) Settled(model.Revision, model.Revision, distribution.Outcome, time.Time) {}
