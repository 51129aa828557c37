package ir

import "github.com/moonsail/moonsail/internal/model"

// WasmSource is who has a module that is no file of the sidecar.
type WasmSource uint8

// The sources. Without one the filter is what its failStrategy says.
const (
	WasmFromNobody WasmSource = iota
	WasmFromAgent
)

// Wasm is a filter in WebAssembly.
type Wasm struct {
	Made

	Name     string // of the filter
	Network  bool   // of connections; else of requests
	File     string // of the sidecar, with the module; empty: see From
	From     WasmSource
	Module   model.WasmModule // WasmFromAgent, for the agent alone
	Login    model.PrivateKey // for the registry, a Docker configuration
	Version  string           // of the object, where its module is fetched for each
	RootID   string
	Config   string // JSON; empty: nothing
	Env      map[string]string
	HostEnv  []string // variables of Envoy's own
	FailOpen bool
	Reload   bool
}

// WasmFilters are a chain's, in order, by where they go.
type WasmFilters struct {
	Authn, Authz, Stats, Last []*Wasm
}
