package view

// Wasm is a filter of requests in WebAssembly.
type Wasm struct {
	Name     string // of the filter, Istio's
	File     string // of the sidecar, with the module
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
