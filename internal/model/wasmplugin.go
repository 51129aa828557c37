package model

import "slices"

// KindWasmPlugin is Istio's kind of that name.
const KindWasmPlugin Kind = "WasmPlugin"

// WasmPhase is where among the filters a plugin goes.
type WasmPhase string

// The phases: before tokens are checked, before authorization, before statistics, last.
const (
	WasmUnspecified WasmPhase = ""
	WasmAuthn       WasmPhase = "AUTHN"
	WasmAuthz       WasmPhase = "AUTHZ"
	WasmStats       WasmPhase = "STATS"
)

// WasmPlugin is a filter in WebAssembly, of requests or of connections. Those of the root namespace
// are for all.
type WasmPlugin struct {
	Meta
	Selector map[string]string // empty: all workloads of its namespace
	Targets
	Network    bool       // of connections, whatever is spoken on them; else of requests
	File       string     // of the sidecar, with the module; empty: it is fetched
	Module     WasmModule // what is fetched; zero: nothing
	PluginName string     // what the module is told it is called; empty: its object's name
	Config     string     // what it is configured with: JSON; empty: nothing
	Phase      WasmPhase
	Priority   int32 // within the phase; the highest first
	FailOpen   bool  // calls pass where the module cannot be had, or has failed
	Reload     bool  // a module that has failed is started again
	Env        []WasmVariable
	Matches    []WasmMatch // any of them; empty: all traffic
}

// WasmModule says where a sidecar's agent fetches a module, and how.
type WasmModule struct {
	URL    string // http://, https:// or oci://
	SHA256 string // in hex, of the module or of the image's manifest; empty: any
	// PullSecret has credentials for registries: a Secret of the object's namespace, for its
	// workloads whose service account may read it; empty: none.
	PullSecret string
	Always     bool // it is fetched anew for each version of the object; else what is kept will do
}

// PullSecretKey is the Secret with the credentials that a module is fetched with; false: none.
func (w *WasmPlugin) PullSecretKey() (Key, bool) {
	return Key{Kind: KindSecret, Namespace: w.Namespace, Name: w.Module.PullSecret}, w.Module.PullSecret != ""
}

// WasmVariable is an environment variable of the module.
type WasmVariable struct {
	Name, Value string
	FromHost    bool // Envoy's own, and not Value
}

// WasmMatch is some traffic.
type WasmMatch struct {
	Sides Sides
	Ports []uint32 // of the listener or, inbound, of the workload; empty: all
}

// SelectorLabels implements Selecting.
func (w *WasmPlugin) SelectorLabels() map[string]string { return w.Selector }

// ShapesOutbound implements Selecting.
func (w *WasmPlugin) ShapesOutbound() bool { return true }

// On tells whether a plugin is for traffic of a side at a port.
func (w *WasmPlugin) On(side Sides, port uint32) bool {
	for _, m := range w.Matches {
		if m.Sides&side == 0 {
			continue
		}
		if len(m.Ports) == 0 {
			return true
		}
		for _, p := range m.Ports {
			if p == port {
				return true
			}
		}
	}
	return len(w.Matches) == 0
}

// OnSide tells whether the plugin works on traffic of a side at some port.
func (w *WasmPlugin) OnSide(side Sides) bool {
	return len(w.Matches) == 0 || slices.ContainsFunc(w.Matches, func(m WasmMatch) bool { return m.Sides&side != 0 })
}
