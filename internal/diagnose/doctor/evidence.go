package doctor

import (
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
)

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

	Connected   *Connected // nil: it is not known
	NoConnected string     // why Connected is not known; empty: the control plane has no such pages
}

// Connected is the state of the proxies that are connected to a control plane of Moonsail, as 'moonsail proxies' and 'moonsail
// stale' list them.
type Connected struct {
	Now     time.Time // of the control plane's clock
	Proxies []ConnectedProxy
	// Disconnected are its last ones, unless they are connected to another control plane.
	Disconnected []DisconnectedProxy
	Stale        *explain.Stale

	Untranslated []UntranslatedResource
	// Calls are those that the control plane has measured in the last minutes.
	Calls []Call
}

// UntranslatedResource is a resource that a proxy group lacks, or has in an earlier or reduced form, as its objects cannot be
// translated.
type UntranslatedResource struct {
	Group string `json:"group"`
	Type  string `json:"type"`
	Name  string `json:"name"`
	Error string `json:"error"`
}

// DisconnectedProxy is a proxy that was connected, and whose Pod or endpoint is still there.
type DisconnectedProxy struct {
	Name    string // name.namespace
	Since   time.Time
	Settled uint64 // the revision up to which it had everything
}

// ConnectedProxy is the state of a proxy.
type ConnectedProxy struct {
	Name        string // name.namespace
	Behind      bool
	BehindSince time.Time // zero: for longer than the control plane remembers
	Unread      bool      // it does not read its stream
	Types       []ConnectedType
}

// ConnectedType is the state of a type of resources of a proxy.
type ConnectedType struct {
	Type            string // "CDS"
	UnansweredSince time.Time
	Waits           string // what it waits for; empty: nothing is to be sent
	Refused         []RefusedResource
}

// RefusedResource is a resource that is held back, as the proxy has refused it.
type RefusedResource struct {
	Name    string
	Message string // of the proxy
	Since   time.Time
	By      string // "by EnvoyFilter shop/region, filters.yaml:3": what it is refused for; empty: unknown
}

func (p *ConnectedProxy) refuses() bool {
	return slices.ContainsFunc(p.Types, func(t ConnectedType) bool { return len(t.Refused) > 0 })
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
