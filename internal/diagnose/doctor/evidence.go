package doctor

import "time"

// Evidence is what was collected.
type Evidence struct {
	At           time.Time
	ControlPlane *PlaneEvidence // nil: no control plane was asked
	Sidecars     []ProxyEvidence
}

// PlaneEvidence is what a control plane shows to scrapers.
type PlaneEvidence struct {
	Address string
	Before  Metrics // nil: it was asked once
	Now     Metrics
	Over    time.Duration // between the two readings
}

// ProxyEvidence is what an Envoy's admin interface shows.
type ProxyEvidence struct {
	Address     string
	Version     string
	Concurrency int               // worker threads
	Before      map[string]uint64 // counters and gauges; nil: it was asked once
	Now         map[string]uint64
	Over        time.Duration // between the two readings
	Hosts       []Host
	Filters     map[string]int // number of listeners' filters that run a program, by type URL
	NoFilters   string         // why Filters is incomplete; empty: it is complete
}

// Host is an endpoint of a cluster, as Envoy knows it. Its counters begin when Envoy learns of it.
type Host struct {
	Cluster, Address               string
	Connects, ConnectFails, Active uint64
}
