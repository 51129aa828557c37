package translate

import (
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/nametable"
)

// Names encodes the name table of one host, which the agent's DNS proxy reads. It is not a resource of Envoy.
func Names(v *ir.Names) []byte {
	e := nametable.Entry{Host: string(v.Host), Addresses: v.Addresses}
	if v.Service != "" {
		e.Registry, e.ShortName, e.Namespace = nametable.Kubernetes, v.Service, v.Namespace
	}
	return nametable.Encode(e)
}
