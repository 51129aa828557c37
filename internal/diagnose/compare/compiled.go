package compare

import (
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/model"
)

// Compiled returns what this Moonsail gives to the proxies of a configuration. mesh is the mesh's configuration without the
// MeshConfig among the objects; nil: the default. failures are resources that cannot be translated.
func Compiled(name string, mesh *model.Mesh, s preview.Side) (side *Side, failures []string, err error) {
	worlds, failures, err := preview.Worlds(mesh, s)
	if err != nil {
		return nil, nil, err
	}
	side = &Side{Name: name, Kind: Moonsail}
	for _, w := range worlds {
		node, err := NodeOf(w.Proxy)
		if err != nil {
			return nil, nil, err
		}
		side.Proxies = append(side.Proxies, &Proxy{
			Name: w.String(), Gateway: w.Type == model.ProxyRouter, IPs: w.IPs, Principal: w.Principal, World: w.World, Kind: Moonsail, Node: node,
			madeFrom: w.MadeFrom,
		})
	}
	return side, failures, nil
}
