package server

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// strategies selects the route strategy of a delta stream: the first row that matches applies. All
// other streams get whole routes.
//
// Sidecars that may have scopes from another control plane, or from another strategy, keep them
// under each of these, see keep.go.
var strategies = []struct {
	option   RouteStrategy
	typ      model.ProxyType // empty: any
	agent    string          // empty: any
	since    release         // of Envoy; the zero value: any, also an unknown one
	strategy *ledger.Strategy
	splits   bool // large route configurations are sharded
}{
	{option: RoutesVHDS, typ: model.ProxySidecar, agent: "envoy", strategy: ledger.ScopedRoutes},
	{option: RoutesVHDS, strategy: ledger.VirtualHosts},
	{option: RoutesScoped, typ: model.ProxySidecar, agent: "envoy", since: celInFormats, strategy: ledger.ScopedRoutes, splits: true},
	{option: RoutesScoped, typ: model.ProxySidecar, agent: "envoy", strategy: ledger.ScopedRoutes},
	{option: RoutesAuto, typ: model.ProxySidecar, agent: "envoy", since: shardsByDefault, strategy: ledger.ScopedRoutes, splits: true},
	{option: RoutesAuto, typ: model.ProxySidecar, agent: "envoy", strategy: ledger.ScopedRoutes},
}

// release is a release of Envoy: 1.34.
type release struct{ major, minor int }

var (
	// celInFormats is the first release that evaluates %CEL()% in all formats, including the header
	// that selects a scope, if it is built with it. Other releases refuse listeners with it.
	celInFormats = release{1, 34}
	// shardsByDefault is the first release that gets route shards by default. Older releases are
	// reported not to support VHDS in the route configurations of scopes, and 1.34 compiles the regular
	// expressions of a shard for each request.
	shardsByDefault = release{1, 40}
)

// fits reports whether a proxy has this release or a newer one, with the required extensions.
func (r release) fits(p *model.Proxy) bool {
	return r == (release{}) || !p.NoShards && r.reaches(p.EnvoyVersion)
}

// reaches reports whether a version, "1.40.0", is this release or a newer one. An unknown version
// is not.
func (r release) reaches(version string) bool {
	var v release
	if n, _ := fmt.Sscanf(version, "%d.%d.", &v.major, &v.minor); n < 2 {
		return false
	}
	return v.major > r.major || v.major == r.major && v.minor >= r.minor
}

// strategy returns how routes reach a proxy, and whether large route configurations are sharded.
func (s *Server) strategy(protocol ledger.Protocol, p *model.Proxy, agent string) (_ *ledger.Strategy, splits bool) {
	for _, r := range strategies {
		if r.option == s.opts.RouteStrategy && protocol == ledger.Delta && (r.typ == "" || r.typ == p.Type) &&
			(r.agent == "" || r.agent == agent) && r.since.fits(p) {
			return r.strategy, r.splits
		}
	}
	return ledger.WholeRoutes, false
}
