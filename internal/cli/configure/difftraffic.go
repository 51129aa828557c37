package configure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/controlplane/traffic"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// The control plane measures calls while its page is read, for the first time soon after the first request. Many proxies take
// several measurements.
const (
	trafficPatience = 30 * time.Second
	trafficPause    = 500 * time.Millisecond
)

// callsHost returns which workloads call which hosts, by the metrics that a control plane reads. Notes state what it does not know.
func (f *diffFlags) callsHost(ctx context.Context, in *preview.Input) (calls func(*model.Proxy, model.Host) bool, notes []string, err error) {
	graph, err := f.measured(ctx)
	if err != nil {
		return nil, nil, err
	}
	measured := map[string][]*traffic.Call{} // by workload.namespace of the caller
	for i := range graph.Edges {
		e := &graph.Edges[i]
		from := e.Source.Workload + "." + e.Source.Namespace
		measured[from] = append(measured[from], &e.Call)
	}
	if len(measured) == 0 {
		return nil, nil, &terminal.UserError{What: "no calls were measured", Where: "--traffic",
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
	whole := allMeasured(graph)
	return func(p *model.Proxy, host model.Host) bool {
		list, known := measured[cmp.Or(workloads[p.String()], p.String())]
		return !known && !whole || slices.ContainsFunc(list, func(c *traffic.Call) bool { return reaches(c, host) })
	}, lackingIn(graph), nil
}

// reaches reports whether a measured call reached a host. A call that the caller's proxy answered has neither service nor server.
func reaches(c *traffic.Call, host model.Host) bool {
	if c.Target.Name == "" {
		return host == "" && c.Destination.Workload == ""
	}
	return string(host) == c.Target.Name || strings.HasPrefix(string(host), c.Target.Name+"."+c.Target.Namespace+".svc.")
}

func allMeasured(g *traffic.Graph) bool {
	return g.Complete && g.Proxies.Measured >= g.Proxies.Connected
}

// lackingIn returns notes about what a graph does not have.
func lackingIn(g *traffic.Graph) []string {
	var notes []string
	if !allMeasured(g) {
		what := "not all control planes have measured their proxies"
		if missing := g.Proxies.Connected - g.Proxies.Measured; missing > 0 {
			what = fmt.Sprintf("%d of %s were not measured", missing, terminal.Count(g.Proxies.Connected, "proxy"))
		}
		notes = append(notes, what+": workloads without measured calls are taken to call all services")
	}
	if g.LeftOut > 0 {
		notes = append(notes, terminal.Count(g.LeftOut, "measured call")+" left out: the control plane lists only the busiest")
	}
	return append(notes, g.Failures...)
}

// measured returns a graph of all proxies. If that takes too long, it has at least one measurement.
func (f *diffFlags) measured(ctx context.Context) (*traffic.Graph, error) {
	ctx, cancel := context.WithTimeout(ctx, trafficPatience)
	defer cancel()
	var newest *traffic.Graph
	for {
		var graph traffic.Graph
		err := f.plane.Get(ctx, "/debug/traffic", &graph)
		if err == nil && !graph.At.IsZero() {
			newest = &graph
		}
		if newest != nil && (newest.Complete || ctx.Err() != nil) {
			return newest, nil
		}
		if err != nil {
			return nil, err
		}
		if err := clock.Sleep(ctx, trafficPause); err != nil && newest == nil {
			return nil, &terminal.UserError{What: "no calls were measured in time", Where: "--traffic", Err: err, Next: "leave --traffic out, or see 'moonsail dashboard' for failures"}
		}
	}
}
