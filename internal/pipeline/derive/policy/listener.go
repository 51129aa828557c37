package policy

import (
	"cmp"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// InspectTimeout bounds how long a client may stay silent before its connection is treated as one where the server speaks
// first.
const InspectTimeout = 5 * time.Second

// PlainHTTP are the application protocols that Envoy's http_inspector detects.
var PlainHTTP = []string{"http/1.0", "http/1.1", "h2c"}

// ClosingChain closes connections to the sidecar's own port: forwarded, they would come back.
func ClosingChain(name string, port uint32) ir.FilterChain {
	return ir.FilterChain{Name: name, Closes: true, Match: ir.ChainMatch{DestinationPort: port}, TCP: Refusal()}
}

// Refusal closes connections.
func Refusal() *ir.TCPChain {
	return &ir.TCPChain{
		StatPrefix: ir.BlackHoleCluster,
		Backends:   []ir.Backend{{Cluster: ir.BlackHoleCluster, Weight: 1}},
	}
}

// Finish completes a listener with what all listeners have: addresses of both families, the mesh's normalization of paths
// and its timeout for silent clients, and the headers that proxies set.
func Finish(c *index.Client, mesh *model.Mesh, l *ir.Listener) {
	ListenOnBoth(c, l)
	if d := mesh.DetectionTimeout; d != nil && l.ContinueOnTimeout {
		l.InspectTimeout, l.InspectForever = *d, *d == 0
	}
	connections := c.Connections(mesh)
	if connections != nil && c.Key.IsRouter() {
		l.BufferLimit = connections.BufferLimit
	}
	l.EachChain(func(chain *ir.FilterChain) {
		if http := chain.HTTP; http != nil {
			http.Paths, http.Headers, http.Connections, http.HTTP10 = mesh.Paths, c.Headers(mesh), connections, mesh.HTTP10 || c.Key.HTTP10
		}
	})
}

// ListenOnBoth makes a listener for all addresses listen on those of both IP families.
func ListenOnBoth(c *index.Client, l *ir.Listener) {
	if c.Key.Families == model.DualStack && l.Address == index.AnyAddress {
		l.Also = index.AnyAddress6
	}
}

// Filters are what Telemetries and WasmPlugins add to every listener of a group.
type Filters struct {
	Telemetry *ir.Telemetry       // all chains share it
	Observed  *model.Origins      // that Telemetry is made from
	Plugins   []*model.WasmPlugin // in order
}

// AddTo adds telemetry and plugins to a listener's chains, and everything that the chains are made from to the origins.
func (f *Filters) AddTo(c *index.Client, l *ir.Listener, from *model.OriginList) {
	l.EachChain(func(chain *ir.FilterChain) { f.observe(c, chain, from) })
	if len(f.Plugins) > 0 {
		l.EachChain(func(chain *ir.FilterChain) { f.extend(c, chain, l.Port, from) })
	}
}

// observe adds telemetry to a chain. Connections that the chain closes are not calls.
func (f *Filters) observe(client *index.Client, c *ir.FilterChain, from *model.OriginList) {
	from.AddAll(c.Origins)
	if c.Closes {
		return
	}
	from.AddAll(f.Observed)
	switch {
	case c.HTTP != nil: // a copy: values of earlier deltas do not change
		http := *c.HTTP
		http.Telemetry, http.PeerTold, c.HTTP = f.Telemetry, c.TLS != nil && c.TLS.IsMesh() && client.Key.Inbound, &http
		http.Uncounted = client.Key.Uncounted
	case c.TCP != nil:
		tcp := *c.TCP
		tcp.Telemetry, c.TCP = f.Telemetry, &tcp
	}
}

// extend adds plugins to a chain. port is the listener's, for chains that match no port.
func (f *Filters) extend(client *index.Client, c *ir.FilterChain, port uint32, from *model.OriginList) {
	if c.Closes {
		return
	}
	side := model.SideClient
	if client.Key.Inbound {
		side, port = model.SideServer, cmp.Or(c.Match.DestinationPort, port)
	}
	if c.HTTP != nil || !leadsNowhereKnown(c.TCP) {
		c.Wasm = f.pluginsOn(client, true, side, port, from)
	}
	if c.HTTP == nil {
		return
	}
	if filters := f.pluginsOn(client, false, side, port, from); filters != nil {
		http := *c.HTTP // a copy: values of earlier deltas do not change
		http.Wasm, c.HTTP = filters, &http
	}
}
