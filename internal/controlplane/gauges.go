package controlplane

import (
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// addGauges registers the gauges that are computed when they are read.
func (p *parts) addGauges() {
	m, e, x := p.metrics, p.pipeline, p.explainer
	m.IntakeDepth(p.source.intake.DepthOf)
	m.Inventory(
		func() int { return e.Snapshot().Len(model.KindService) + e.Snapshot().Len(model.KindServiceEntry) },
		func(k model.Kind) int { return e.Snapshot().Len(k) },
	)
	m.Gauge("moonsail_service_entry_hosts_without_address", "Hosts of ServiceEntries for which no address is left.",
		func() float64 { return float64(len(e.Lacking())) })
	m.Gauge("moonsail_configuration_errors", "Errors in objects and files. An object with errors is not used, or only its valid part: an earlier version stays in force.",
		func() float64 { return float64(problem.List(p.source.problems()).Count(problem.SeverityError)) })
	m.Counter("pilot_total_xds_internal_errors", "Total number of internal XDS errors in pilot: resources that could not be translated.",
		func() float64 { return float64(e.TotalFailures()) })
	m.Gauge("moonsail_stale_proxies", "Connected proxies with endpoints that were removed more than a second ago.",
		func() float64 { return float64(x.StaleProxies()) })
	m.Gauge("moonsail_oldest_unacked_seconds", "Age of the oldest response without an ACK or NACK.",
		func() float64 { return x.UnansweredFor().Seconds() })
	m.Gauge("moonsail_webhooks_untrusted", "Webhook configurations that do not have this control plane's certificate.",
		func() float64 { return float64(p.webhook.trusted().Lacking()) })
}
