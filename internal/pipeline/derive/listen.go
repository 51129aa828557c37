package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// finish completes a listener with what all listeners have: addresses of both families, the mesh's normalization of paths
// and its timeout for silent clients, and the headers that proxies set.
func finish(c *index.Client, mesh *model.Mesh, l *ir.Listener) {
	listenOnBoth(c, l)
	if d := mesh.DetectionTimeout; d != nil && l.ContinueOnTimeout {
		l.InspectTimeout, l.InspectForever = *d, *d == 0
	}
	for i := range l.Chains {
		if http := l.Chains[i].HTTP; http != nil {
			http.Paths, http.Headers = mesh.Paths, c.Headers(mesh)
		}
	}
	if l.Default != nil && l.Default.HTTP != nil {
		l.Default.HTTP.Paths, l.Default.HTTP.Headers = mesh.Paths, c.Headers(mesh)
	}
}

// listenOnBoth makes a listener for all addresses take those of both IP families.
func listenOnBoth(c *index.Client, l *ir.Listener) {
	if c.Key.Families == model.DualStack && l.Address == index.AnyAddress {
		l.Also = index.AnyAddress6
	}
}
