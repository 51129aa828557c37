package server

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// strategies is who gets which route strategy on a delta stream; the first row that fits counts. What else
// there is gets whole routes.
//
// Sidecars that may have scopes from another control plane, or another strategy, keep them under
// any of these: keep.go.
var strategies = []struct {
	option   RouteStrategy
	typ      model.ProxyType // empty: any
	agent    string          // empty: any
	since    release         // Envoy's; the zero value: any, also one that is not known
	strategy *ledger.Strategy
	splits   bool // large route configurations come in buckets
}{
	{option: RoutesVHDS, typ: model.ProxySidecar, agent: "envoy", strategy: ledger.ScopedRoutes},
	{option: RoutesVHDS, strategy: ledger.VirtualHosts},
	{option: RoutesScoped, typ: model.ProxySidecar, agent: "envoy", since: celInFormats, strategy: ledger.ScopedRoutes, splits: true},
	{option: RoutesScoped, typ: model.ProxySidecar, agent: "envoy", strategy: ledger.ScopedRoutes},
	{option: RoutesAuto, typ: model.ProxySidecar, agent: "envoy", since: bucketsTried, strategy: ledger.ScopedRoutes, splits: true},
	{option: RoutesAuto, typ: model.ProxySidecar, agent: "envoy", strategy: ledger.ScopedRoutes},
}

// release is one of Envoy's: 1.34.
type release struct{ major, minor int }

var (
	// celInFormats is the first that computes %CEL()% wherever formats are, also in the header that a scope
	// is chosen by, if it is built with it. Others refuse listeners with it.
	celInFormats = release{1, 34}
	// bucketsTried is the first that gets buckets unasked. VHDS in the route configurations of scopes has
	// long been said not to work, and 1.34 compiles a bucket's regular expressions anew for each request.
	bucketsTried = release{1, 40}
)

// fits tells whether a proxy is of this release or a newer one, with what is asked of it.
func (r release) fits(p *model.Proxy) bool {
	return r == (release{}) || !p.NoBuckets && r.reaches(p.EnvoyVersion)
}

// reaches tells whether a version, "1.40.0", is of this release or a newer one; not if it is not known.
func (r release) reaches(version string) bool {
	var v release
	if n, _ := fmt.Sscanf(version, "%d.%d.", &v.major, &v.minor); n < 2 {
		return false
	}
	return v.major > r.major || v.major == r.major && v.minor >= r.minor
}

// strategy is how a proxy's routes reach it, and whether large route configurations do so in buckets.
func (s *Server) strategy(protocol ledger.Protocol, p *model.Proxy, agent string) (_ *ledger.Strategy, splits bool) {
	for _, r := range strategies {
		if r.option == s.opts.RouteStrategy && protocol == ledger.Delta && (r.typ == "" || r.typ == p.Type) &&
			(r.agent == "" || r.agent == agent) && r.since.fits(p) {
			return r.strategy, r.splits
		}
	}
	return ledger.WholeRoutes, false
}
