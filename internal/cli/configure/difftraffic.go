package configure

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/controlplane/traffic"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// The control plane measures calls while its page is read, for the first time soon after the first request.
const (
	trafficPatience = 30 * time.Second
	trafficPause    = 500 * time.Millisecond
)

// callsHost returns which workloads call which hosts, by the metrics that a control plane reads.
func (f *diffFlags) callsHost(ctx context.Context, in *preview.Input) (func(*model.Proxy, model.Host) bool, error) {
	graph, err := f.measured(ctx)
	if err != nil {
		return nil, err
	}
	calls := map[string][]traffic.Target{} // workload.namespace -> services
	for i := range graph.Edges {
		e := &graph.Edges[i]
		from := e.Source.Workload + "." + e.Source.Namespace
		calls[from] = append(calls[from], e.Target)
	}
	if len(calls) == 0 {
		return nil, &terminal.UserError{What: "no calls were measured", Where: "--traffic",
			Next: "check that proxies run with 'moonsail agent' ('moonsail proxies'), or leave --traffic out"}
	}
	workloads := map[string]string{} // name.namespace of a proxy -> workload.namespace
	for _, side := range []*preview.Side{&in.Before, &in.After} {
		for _, o := range side.Objects {
			if w, ok := o.(*model.Workload); ok {
				workloads[w.Name+"."+w.Namespace] = cmp.Or(w.Owner, w.Name) + "." + w.Namespace
			}
		}
	}
	return func(p *model.Proxy, host model.Host) bool {
		for _, t := range calls[cmp.Or(workloads[p.String()], p.String())] {
			if string(host) == t.Name || strings.HasPrefix(string(host), t.Name+"."+t.Namespace+".svc.") {
				return true
			}
		}
		return false
	}, nil
}

// measured returns a graph with at least one measurement.
func (f *diffFlags) measured(ctx context.Context) (*traffic.Graph, error) {
	ctx, cancel := context.WithTimeout(ctx, trafficPatience)
	defer cancel()
	for {
		var graph traffic.Graph
		if err := f.plane.Get(ctx, "/debug/traffic", &graph); err != nil {
			return nil, err
		}
		if !graph.At.IsZero() {
			return &graph, nil
		}
		if err := clock.Sleep(ctx, trafficPause); err != nil {
			return nil, &terminal.UserError{What: "no calls were measured in time", Where: "--traffic", Err: err, Next: "leave --traffic out, or see 'moonsail dashboard' for failures"}
		}
	}
}
