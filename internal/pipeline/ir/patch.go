package ir

import "github.com/moonsail/moonsail/internal/model"

// Patches are what EnvoyFilters change of the resources of one proxy group, in the order in which they apply.
type Patches struct {
	Gateway bool // the proxies are gateways
	List    []Patch
}

// Patch is one change, with the EnvoyFilter that it is from.
type Patch struct {
	*model.EnvoyPatch
	Origin model.Key
}

// MatchesRoutes reports whether a patch is for a route configuration. Names of ports and gateways do not count for
// sidecars.
func (p *Patch) MatchesRoutes(gateway bool, k RouteConfigKey) bool {
	m := p.Routes
	if m == nil {
		return true
	}
	if m.Name != "" && m.Name != k.Name || m.Port != 0 && m.Port != k.Port {
		return false
	}
	if !gateway || m.PortName == "" && m.Gateway == "" {
		return true
	}
	// Servers in plain text share route configurations, so that these have no port name and no gateway.
	return k.Server != nil && (m.PortName == "" || m.PortName == k.Server.PortName) && (m.Gateway == "" || m.Gateway == k.Server.Gateway)
}
