package derive

import (
	"fmt"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// What clients of the mesh offer in a TLS handshake, as Istio's do: so their mutual TLS is
// told from TLS of applications, and requests from bytes. http2 and the like may follow.
var (
	meshHTTP = []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	meshTCP  = []string{"istio-peer-exchange", "istio"}
	meshAny  = slices.Concat(meshTCP, meshHTTP)
)

// Transport protocols, as the TLS inspector names them.
const (
	transportTLS = "tls"
	transportRaw = "raw_buffer"
)

// reading is what an inbound port is read as.
type reading uint8

const (
	readBytes    reading = iota // bytes
	readRequests                // requests
	readEither                  // whatever the first bytes show
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

// inboundChains are a port's chains by mode, disjoint. The last one has no suffix, or takes
// what no other does. Plain text goes on to chains without a transport protocol only where
// no chain of the port names one: Envoy never goes back from one that some chain names.
var inboundChains = map[model.MTLSMode]map[reading][]inboundChain{
	model.MTLSDisable: {
		readRequests: {{http: true}},
		readEither: {
			{suffix: "#http", transport: transportRaw, alpn: plainHTTP, http: true},
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
			{suffix: "#http", transport: transportRaw, alpn: plainHTTP, http: true},
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

// inboundTLS is what a workload's own listeners accept.
type inboundTLS struct {
	*model.PeerTLS
	server   *ir.ServerTLS      // nil: the proxy has no certificates
	defaults *model.TLSDefaults // of TLS that a Sidecar asks for
	files    bool               // of such TLS: the agent reads files with certificates
}

func (s *proxyGroup) inboundTLS(r *index.Reader) inboundTLS {
	out := inboundTLS{PeerTLS: r.PeerTLS(), defaults: r.Mesh().TLSDefaults, files: s.Key.Files}
	if s.Key.Identity {
		out.server = ir.MeshTLS(r.Mesh())
	}
	return out
}

// refuses tells whether nothing may be let in on a port: mutual TLS only, and the proxy has
// no certificates for it.
func (t inboundTLS) refuses(port uint32) bool {
	return t.server == nil && t.Of(port) == model.MTLSStrict
}

// chains gives the chains of a port by its mode. What has no certificates takes plain text.
func (t inboundTLS) chains(port uint32, as reading) []inboundChain {
	if t.server == nil {
		return inboundChains[model.MTLSDisable][as]
	}
	return inboundChains[t.Of(port)][as]
}

// ends is the TLS that a Sidecar asks for at a port. As in Istio it ends only where mutual TLS is
// switched off: the two could not be told apart.
func (t inboundTLS) ends(p *inboundPort) *ir.ServerTLS {
	if p.tls == nil || t.Of(p.number) != model.MTLSDisable {
		return nil
	}
	return &ir.ServerTLS{Server: t.defaults.Under(p.tls), AgentFiles: t.files}
}

// plain tells whether no chain of virtualInbound ends TLS.
func (t inboundTLS) plain(ports []inboundPort) bool {
	return (t.server == nil || !t.Accepts()) && !t.endsAny(ports)
}

// endsAny tells whether virtualInbound ends TLS that a Sidecar asks for.
func (t inboundTLS) endsAny(ports []inboundPort) bool {
	return slices.ContainsFunc(ports, func(p inboundPort) bool { return p.own == nil && t.ends(&p) != nil })
}

// build makes the chains of one port. name is the first part of their names, http and tcp
// what they do.
func (t inboundTLS) build(name string, port uint32, as reading, http *ir.HTTPChain, tcp *ir.TCPChain) []ir.FilterChain {
	match := ir.ChainMatch{DestinationPort: port}
	if t.refuses(port) {
		return []ir.FilterChain{{Name: name + "#refused", Match: match, TCP: refusal()}}
	}
	if http != nil {
		http.FromMesh = t.server != nil
	}
	var out []ir.FilterChain
	for _, c := range t.chains(port, as) {
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

// refusal closes connections.
func refusal() *ir.TCPChain {
	return &ir.TCPChain{
		StatPrefix: ir.BlackHoleCluster,
		Backends:   []ir.Backend{{Cluster: ir.BlackHoleCluster, Weight: 1}},
	}
}

// catchAll makes the chains for ports that no service has: those for which the policy has a
// mode of their own (but for the listener's, see blackHoleChain), and then all others. Where TLS ends somewhere they are chains like
// others, and there is no default chain: what a port's chains do not match, plain text where
// only TLS may be, would come to it.
func (t inboundTLS) catchAll(l *ir.Listener, served []inboundPort, tcp *ir.TCPChain) {
	const name = "virtualInbound-catchall"
	for _, port := range slices.Sorted(maps.Keys(t.Ports)) {
		if port == l.Port || slices.ContainsFunc(served, func(p inboundPort) bool { return p.number == port }) {
			continue
		}
		l.Chains = append(l.Chains, t.build(fmt.Sprintf("%s|%d", name, port), port, readBytes, nil, tcp)...)
	}
	rest := t.build(name, 0, readBytes, nil, tcp)
	if t.plain(served) {
		rest[0].Name, l.Default = name, &rest[0]
		return
	}
	l.Chains = append(l.Chains, rest...)
}

// uninspected are the ports of which every connection is taken as bytes.
func (t inboundTLS) uninspected(ports []inboundPort) []uint32 {
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

// inspect has a listener look at first bytes as far as its chains ask for it.
func inspect(l *ir.Listener) {
	plain := l.Default != nil
	for i := range l.Chains {
		c := &l.Chains[i]
		l.InspectTLS = l.InspectTLS || c.Match.TransportProtocol != ""
		l.InspectHTTP = l.InspectHTTP || c.TLS == nil && len(c.Match.ALPN) > 0
		plain = plain || c.TLS == nil && c.Match.DestinationPort != l.Port
	}
	if l.InspectTLS && plain {
		l.InspectTimeout, l.ContinueOnTimeout = inspectTimeout, true
	}
}
