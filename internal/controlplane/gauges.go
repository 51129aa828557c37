package controlplane

import (
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// watch registers the gauges that are computed when they are read.
func watch(m *changelog.Metrics, e *engine.Engine, in *store.Intake) {
	m.IntakeDepth(in.DepthOf)
	m.Inventory(
		func() int { return e.Snapshot().Len(model.KindService) + e.Snapshot().Len(model.KindServiceEntry) },
		func(k model.Kind) int { return e.Snapshot().Len(k) },
	)
	m.Gauge("moonsail_service_entry_hosts_without_address", "Hosts of ServiceEntries for which no address is left.",
		func() float64 { return float64(len(e.Lacking())) })
}

// watchProxies registers the gauges of what proxies lack.
func watchProxies(m *changelog.Metrics, x *explain.Explainer) {
	m.Gauge("moonsail_stale_proxies", "Connected proxies with endpoints that were removed more than a second ago.",
		func() float64 { return float64(x.StaleProxies()) })
	m.Gauge("moonsail_oldest_unacked_seconds", "Age of the oldest response without an ACK or NACK.",
		func() float64 { return x.UnansweredFor().Seconds() })
}
