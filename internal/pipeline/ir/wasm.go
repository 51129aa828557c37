package ir

import "github.com/moonsail/moonsail/internal/model"

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
