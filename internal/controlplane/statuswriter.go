package controlplane

import (
	"fmt"
	"math/rand/v2"

	"github.com/moonsail/moonsail/internal/controlplane/status"
)

// newStatusWriter returns the writer of statuses, and registers its gauges.
func newStatusWriter(p *parts) *status.Writer {
	o, s := p.opts, p.source
	w := &status.Writer{
		Board: s.board, Client: s.client, Namespace: o.Mesh.RootNamespace, Identity: fmt.Sprintf("%s_%x", identity(), rand.Uint64()), Mesh: o.Mesh,
		Explain: p.explainer, Proxies: p.xds, Others: &status.Others{Peers: p.peers}, Synced: p.pipeline.Synced, Meter: p.metrics, Log: o.Log,
		Election: o.Election,
	}
	p.metrics.Gauge("moonsail_status_leader", "Whether this control plane writes the statuses of Istio objects.", func() float64 {
		if w.Leads() {
			return 1
		}
		return 0
	})
	p.metrics.Gauge("moonsail_status_queue", "Objects whose status is to be written by the leader.",
		func() float64 { return float64(s.board.Queued()) })
	return w
}
