package ir

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

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
	if m.Name != "" && m.Name != k.Name || m.Port != 0 && !k.hasPort(m.Port) {
		return false
	}
	if !gateway || m.PortName == "" && m.Gateway == "" {
		return true
	}
	// Servers in plain text share route configurations, so that these have no port name and no gateway.
	return k.Server != nil && (m.PortName == "" || m.PortName == k.Server.PortName) && (m.Gateway == "" || m.Gateway == k.Server.Gateway)
}

// hasPort reports whether EnvoyFilters match the route configuration by a port.
func (k *RouteConfigKey) hasPort(number uint32) bool {
	if k.Plain != nil {
		return slices.Contains(k.Plain.Ports, number)
	}
	return k.Port == number
}

// Bootstrap is what one EnvoyFilter changes of the bootstraps of a group's proxies.
type Bootstrap struct {
	Made

	Name    string // of the resource; agents apply bootstraps in the order of names
	Patches []Patch
}

// WasmSource is where a module comes from that is not a file of the sidecar.
type WasmSource uint8

// The sources. Without one the filter behaves by its failStrategy.
const (
	WasmFromNone WasmSource = iota
	WasmFromAgent
)

// Wasm is a filter in WebAssembly.
type Wasm struct {
	Made

	Name     string // of the filter
	Network  bool   // of connections; else of requests
	File     string // of the sidecar, with the module; empty: see From
	From     WasmSource
	Module   model.WasmModule // WasmFromAgent, only for the agent
	Login    model.PrivateKey // for the registry, a Docker configuration
	Version  string           // of the object, if each version of it fetches the module again
	RootID   string
	Config   string // JSON; empty: nothing
	Env      map[string]string
	HostEnv  []string // variables of Envoy's environment
	FailOpen bool
	Reload   bool
}

// WasmFilters are those of a chain in order, by phase.
type WasmFilters struct {
	Authn, Authz, Stats, Last []*Wasm
}
