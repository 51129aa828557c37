// Package ir has the values that derive produces and translate reads: the configuration of a proxy group in the mesh's own
// terms, with every decision made. They are the whole input of translate, which therefore cannot depend on anything that
// derive did not declare.
//
// Values are immutable. They contain no time, no pointer to the store, and no map whose order could reach the output: equal
// values give equal Envoy resources.
//
// Start reading at Cluster, Listener and VirtualHost. The names of resources are written in resourcename.go. extension.go
// has what EnvoyFilters and WasmPlugins add, security.go who may call and with which certificates.
package ir

import "github.com/moonsail/moonsail/internal/model"

// Made is part of each value: the objects that it was made from. Envoy does not receive it, so that a value may change only
// in its origins.
type Made struct{ Origins *model.Origins }

// MadeFrom are the objects that the value was made from.
func (m *Made) MadeFrom() *model.Origins { return m.Origins }
