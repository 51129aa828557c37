package doctor

import "time"

// Evidence is what was collected.
type Evidence struct {
	At           time.Time
	ControlPlane *PlaneEvidence // nil: none was asked
	Sidecars     []ProxyEvidence
}

// PlaneEvidence is what a control plane tells scrapers.
type PlaneEvidence struct {
	Address string
	Before  Metrics // nil: it was asked once
	Now     Metrics
	Over    time.Duration // between the two
}

// ProxyEvidence is what an Envoy's admin interface tells.
type ProxyEvidence struct {
	Address     string
	Version     string
	Concurrency int               // worker threads
	Before      map[string]uint64 // counters and gauges; nil: it was asked once
	Now         map[string]uint64
	Over        time.Duration // between the two
	Hosts       []Host
	Filters     map[string]int // listeners' filters that run a program, by type URL: how many there are
}

// Host is an endpoint of a cluster, as Envoy knows it. Counters are since it knows it.
type Host struct {
	Cluster, Address               string
	Connects, ConnectFails, Active uint64
}
