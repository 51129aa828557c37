package translate

import (
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/nametable"
)

// Names is a table of one host, encoded.
func Names(v *ir.Names) []byte {
	e := nametable.Entry{Host: string(v.Host), Addresses: v.Addresses}
	if v.Service != "" {
		e.Registry, e.ShortName, e.Namespace = nametable.Kubernetes, v.Service, v.Namespace
	}
	return nametable.Encode(e)
}
