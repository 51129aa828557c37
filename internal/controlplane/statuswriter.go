package controlplane

import (
	"fmt"
	"math/rand/v2"

	"github.com/moonsail/moonsail/internal/controlplane/gatewaydeploy"
	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/controlplane/webhook"
	"github.com/moonsail/moonsail/internal/model"
)

// newStatusWriter returns the writer of statuses, and registers its gauges.
func newStatusWriter(p *parts) *status.Writer {
	o, s := p.opts, p.source
	w := &status.Writer{
		Tracker: s.statuses, Client: s.client, Namespace: o.Mesh.RootNamespace, Identity: fmt.Sprintf("%s_%x", identity(), rand.Uint64()), Mesh: o.Mesh,
		Explain: p.explainer, Proxies: p.xds, Others: &status.Others{Peers: p.peers}, Loaded: p.pipeline.Loaded(), Meter: p.metrics, Log: o.Log,
		Election: o.Election,
	}
	p.metrics.Gauge("moonsail_status_leader", "Whether this control plane writes the statuses of Istio objects.", func() float64 {
		if w.Leads() {
			return 1
		}
		return 0
	})
	p.metrics.Gauge("moonsail_status_queue", "Objects whose status is to be written by the leader.",
		func() float64 { return float64(s.statuses.Queued()) })
	return w
}

// newGatewayController returns the controller of gateways, which the writer of statuses runs while it leads, and registers its gauge.
func newGatewayController(p *parts) *gatewaydeploy.Controller {
	o := p.opts
	c := &gatewaydeploy.Controller{
		Client: p.source.client, RootNamespace: o.Mesh.RootNamespace, Revision: o.Revision, Inject: o.Webhook.Inject, Snapshot: p.pipeline.Snapshot,
		ProxyConfigs: func() *model.ProxyConfigs { return webhook.ProxyConfigs(p.pipeline.Snapshot(), o.Mesh.RootNamespace) },
		Statuses:     p.source.statuses, Log: o.Log, Panicked: func() { p.metrics.Panicked("gateway") },
	}
	p.metrics.Gauge("moonsail_gateway_deployments_queue", "Gateways that wait until the leader deploys them.", func() float64 { return float64(c.Queued()) })
	return c
}
