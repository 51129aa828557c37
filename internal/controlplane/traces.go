package controlplane

import (
	"context"

	"github.com/moonsail/moonsail/internal/telemetry"
	"github.com/moonsail/moonsail/internal/trace"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// newTraces has the change log tell an exporter of traces of its changes, where a collector
// is named: witness is what the server tells it, run the exporter's goroutine.
func newTraces(ctx context.Context, o Options, changes *telemetry.ChangeLog, m *telemetry.Metrics) (witness func(server.Settlement), run func(context.Context), err error) {
	if !o.Traces.On() {
		return nil, func(context.Context) {}, nil
	}
	e, err := trace.New(ctx, o.Traces, m, o.Log)
	if err != nil {
		return nil, nil, err
	}
	changes.Tracer = e
	o.Log.Info("changes are exported as traces", "to", o.Traces.String())
	return changes.Witness, e.Run, nil
}
