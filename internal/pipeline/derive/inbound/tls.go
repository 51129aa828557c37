package inbound

import (
	"fmt"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// What clients of the mesh offer by ALPN, as in Istio. It distinguishes their mutual TLS from TLS of applications, and
// requests from bytes. Other protocols such as h2 may follow.
var (
	meshHTTP = []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	meshTCP  = []string{"istio-peer-exchange", "istio"}
	meshAny  = slices.Concat(meshTCP, meshHTTP)
)

// Transport protocols by the names of Envoy's TLS inspector.
const (
	transportTLS = "tls"
	transportRaw = "raw_buffer"
)

// reading is how the sidecar reads an inbound port.
type reading uint8

const (
	readBytes    reading = iota // bytes
	readRequests                // requests
	readEither                  // by the first bytes
)

func readingOf(p model.Protocol) reading {
	switch {
	case p.IsHTTP():
		return readRequests
	case p == model.ProtocolAuto:
		return readEither
	}
	return readBytes
}

// inboundChain is one chain of a port.
type inboundChain struct {
	suffix    string // of its name
	transport string
	alpn      []string
	http, tls bool // what it ends
}

// inboundChains are a port's chains by mode. They are disjoint. The last one has no suffix, or takes what no other does.
// Plain text reaches chains without a transport protocol only if no chain of the port has one: Envoy does not go back from
// a transport protocol that some chain has.
var inboundChains = map[model.MTLSMode]map[reading][]inboundChain{
	model.MTLSDisable: {
		readRequests: {{http: true}},
		readEither: {
			{suffix: "#http", transport: transportRaw, alpn: policy.PlainHTTP, http: true},
			{suffix: "#raw", transport: transportRaw},
			{},
		},
		readBytes: {{}},
	},
	model.MTLSPermissive: {
		readRequests: {
			{suffix: "#mtls", transport: transportTLS, alpn: meshAny, http: true, tls: true},
			{transport: transportRaw, http: true},
		},
		readEither: {
			{suffix: "#mtls-http", transport: transportTLS, alpn: meshHTTP, http: true, tls: true},
			{suffix: "#mtls", transport: transportTLS, alpn: meshTCP, tls: true},
			{suffix: "#http", transport: transportRaw, alpn: policy.PlainHTTP, http: true},
			{suffix: "#raw", transport: transportRaw},
			{transport: transportTLS},
		},
		readBytes: {
			{suffix: "#mtls", transport: transportTLS, alpn: meshAny, tls: true},
			{suffix: "#tls", transport: transportTLS},
			{transport: transportRaw},
		},
	},
	model.MTLSStrict: {
		readRequests: {{transport: transportTLS, http: true, tls: true}},
		readEither: {
			{suffix: "#http", transport: transportTLS, alpn: meshHTTP, http: true, tls: true},
			{transport: transportTLS, tls: true},
		},
		readBytes: {{transport: transportTLS, tls: true}},
	},
}

// serverTLS is what a workload's own listeners accept.
type serverTLS struct {
	*model.PeerTLS
	server   *ir.ServerTLS      // nil: the proxy has no certificates
	defaults *model.TLSDefaults // for TLS that a Sidecar configures
	files    bool               // for such TLS: the agent reads files with certificates
}

func tlsOf(r *index.Reader) serverTLS {
	out := serverTLS{PeerTLS: r.PeerTLS(), defaults: r.Mesh().TLSDefaults, files: r.Key.Files}
	if r.Key.Identity {
		out.server = ir.MeshTLS(r.Mesh())
	}
	return out
}

// refuses reports whether a port accepts nothing: it requires mutual TLS, and the proxy has no certificates for it.
func (t serverTLS) refuses(number uint32) bool {
	return t.server == nil && t.Of(number) == model.MTLSStrict
}

// chains returns the chains of a port by its mode. A proxy without certificates accepts plain text.
func (t serverTLS) chains(number uint32, as reading) []inboundChain {
	if t.server == nil {
		return inboundChains[model.MTLSDisable][as]
	}
	return inboundChains[t.Of(number)][as]
}

// ends is the TLS that a Sidecar configures for a port. As in Istio it applies only if mutual TLS is off, because the two
// cannot be distinguished.
func (t serverTLS) ends(p *port) *ir.ServerTLS {
	if p.tls == nil || t.Of(p.number) != model.MTLSDisable {
		return nil
	}
	return &ir.ServerTLS{Server: t.defaults.Under(p.tls), AgentFiles: t.files}
}

// plain reports whether no chain of virtualInbound ends TLS.
func (t serverTLS) plain(ports []port) bool {
	return (t.server == nil || !t.Accepts()) && !t.endsAny(ports)
}

// endsAny reports whether virtualInbound ends TLS that a Sidecar configures.
func (t serverTLS) endsAny(ports []port) bool {
	return slices.ContainsFunc(ports, func(p port) bool { return p.own == nil && t.ends(&p) != nil })
}

// build makes the chains of one port. name is the first part of their names; http and tcp are what they do.
func (t serverTLS) build(name string, number uint32, as reading, http *ir.HTTPChain, tcp *ir.TCPChain) []ir.FilterChain {
	match := ir.ChainMatch{DestinationPort: number}
	if t.refuses(number) {
		return []ir.FilterChain{{Name: name + "#refused", Match: match, TCP: policy.Refusal()}}
	}
	if http != nil {
		http.FromMesh = t.server != nil
	}
	var out []ir.FilterChain
	for _, c := range t.chains(number, as) {
		chain := ir.FilterChain{Name: name + c.suffix, Match: match}
		chain.Match.TransportProtocol, chain.Match.ALPN = c.transport, c.alpn
		if c.tls {
			chain.TLS = t.server
		}
		if c.http {
			chain.HTTP = http
		} else {
			chain.TCP = tcp
		}
		out = append(out, chain)
	}
	return out
}

// catchAll makes the chains for ports without a service: ports for which the policy has a mode (except the listener's own,
// see policy.ClosingChain), then all others. As in Istio the first bytes decide whether a connection has requests, so that
// policies about requests apply to these ports, too. If some chain ends TLS, these are chains like others, and there is no
// default chain: it would receive what a port's chains refuse, such as plain text where only TLS is allowed.
func (t serverTLS) catchAll(mesh *model.Mesh, l *ir.Listener, served []port) {
	const name = ir.VirtualInbound + "-catchall"
	tcp := tcpChain(ir.InboundPassthroughCluster)
	for _, number := range slices.Sorted(maps.Keys(t.Ports)) {
		if number == l.Port || slices.ContainsFunc(served, func(p port) bool { return p.number == number }) {
			continue
		}
		l.Chains = append(l.Chains, t.build(fmt.Sprintf("%s|%d", name, number), number, readEither, passthroughHTTP(mesh, number), tcp)...)
	}
	rest := t.build(name, 0, readEither, passthroughHTTP(mesh, 0), tcp)
	if t.plain(served) {
		last := &rest[len(rest)-1]
		last.Name, l.Default, rest = name, last, rest[:len(rest)-1]
	}
	l.Chains = append(l.Chains, rest...)
	l.EachChain(nameCatchAll)
}

// nameCatchAll gives a chain for ports without a service the name that Istio gives it.
func nameCatchAll(c *ir.FilterChain) {
	switch {
	case c.IstioName != "" || c.Closes:
	case c.HTTP != nil:
		c.IstioName = ir.VirtualInbound + "-catchall-http"
	default:
		c.IstioName = ir.VirtualInbound
	}
}

// undetected are the ports whose protocol services declare: bytes do not decide whether a connection has requests.
func undetected(ports []port) []uint32 {
	var out []uint32
	for i := range ports {
		if p := &ports[i]; p.own == nil && readingOf(p.protocol) != readEither {
			out = append(out, p.number)
		}
	}
	slices.Sort(out)
	return out
}

// uninspected are the ports whose connections need no inspection.
func (t serverTLS) uninspected(ports []port) []uint32 {
	var out []uint32
	for i := range ports {
		p := &ports[i]
		mutual := t.server != nil && t.Of(p.number) != model.MTLSDisable
		if p.own == nil && !mutual && readingOf(p.protocol) != readEither && t.ends(p) == nil {
			out = append(out, p.number)
		}
	}
	slices.Sort(out)
	return out
}

// inspect makes a listener inspect the first bytes if its chains match by them.
func inspect(l *ir.Listener) {
	plain := l.Default != nil
	for i := range l.Chains {
		c := &l.Chains[i]
		l.InspectTLS = l.InspectTLS || c.Match.TransportProtocol != ""
		l.InspectHTTP = l.InspectHTTP || c.TLS == nil && len(c.Match.ALPN) > 0
		plain = plain || c.TLS == nil && c.Match.DestinationPort != l.Port
	}
	if l.InspectTLS && plain {
		l.InspectTimeout, l.ContinueOnTimeout = policy.InspectTimeout, true
	}
}
