package compare

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/sample"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

const (
	// elsewhere is the address of names that the mesh does not know.
	elsewhere = caller.Elsewhere
	// unusedPort is a port that no listener is expected to have.
	unusedPort = 4321
	// unknownHost is a host that the mesh does not know.
	unknownHost = "unknown.example.com"
)

// Calls makes calls for what one of two forms of a proxy has: for each listener, each filter chain, each domain and route,
// and each rule of a policy. Both forms get all of them. untried counts the routes and the rules' operations for which it makes
// none.
func Calls(left, right *Proxy) (calls []Call, untried int) {
	m := &maker{
		name: left.Name, proxy: left, worlds: []*simulate.World{left.World, right.World},
		seen: map[string]bool{}, untried: map[string]bool{},
	}
	for _, w := range m.worlds {
		for _, l := range w.Listeners {
			switch {
			case left.Gateway:
				m.entering(w, l)
			case l.GetTrafficDirection() == corev3.TrafficDirection_INBOUND:
				m.arriving(w, l)
			default:
				m.leaving(w, l)
			}
		}
	}
	if !left.Gateway {
		m.unknown()
	}
	return m.out, len(m.untried)
}

// maker makes the calls of one proxy, each once.
type maker struct {
	name    string
	proxy   *Proxy
	worlds  []*simulate.World
	seen    map[string]bool
	untried map[string]bool // as seen: routes and operations without a call
	out     []Call
}

func (m *maker) add(c simulate.Call) {
	key := fmt.Sprint(c)
	if m.seen[key] {
		return
	}
	m.seen[key] = true
	m.out = append(m.out, Call{Proxy: m.name, Call: c})
}

// unknown adds a workload's calls to destinations that no listener has.
func (m *maker) unknown() {
	to := net.JoinHostPort(elsewhere, strconv.Itoa(unusedPort))
	m.add(simulate.Call{To: to, Protocol: simulate.TCP})
	m.add(simulate.Call{To: to, Host: unknownHost, Path: "/"})
	m.add(simulate.Call{To: to, Protocol: simulate.TLS, SNI: unknownHost})
}

// leaving adds a workload's own calls to an outbound listener.
func (m *maker) leaving(w *simulate.World, l *listenerv3.Listener) {
	if l.GetUseOriginalDst().GetValue() {
		return // what no other listener has
	}
	for _, at := range simulate.Addresses(l) {
		base := simulate.Call{Direct: simulate.IsBound(l)}
		for _, chain := range chainsOf(l) {
			match := chain.GetFilterChainMatch()
			for _, to := range destinations(at, match) {
				base.To = to.String()
				for _, name := range match.GetServerNames() {
					m.add(withTLS(base, concrete(name)))
				}
				if hcm := hcmOf(chain); hcm != nil {
					m.requests(w, hcm, base, !at.Addr().IsUnspecified() || len(match.GetPrefixRanges()) > 0)
				}
				tcp := base
				tcp.Protocol = simulate.TCP
				m.add(tcp)
			}
		}
	}
}

func withTLS(base simulate.Call, sni string) simulate.Call {
	base.Protocol, base.SNI = simulate.TLS, sni
	return base
}

// chainsOf returns all filter chains of a listener.
func chainsOf(l *listenerv3.Listener) []*listenerv3.FilterChain {
	out := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		out = append(slices.Clone(out), d)
	}
	return out
}

// destinations returns addresses that a filter chain of a listener takes: one for each of its ranges, or else the listener's.
func destinations(at netip.AddrPort, match *listenerv3.FilterChainMatch) []netip.AddrPort {
	port := at.Port()
	if p := match.GetDestinationPort(); p != nil {
		port = uint16(p.GetValue()) //nolint:gosec // validated by Envoy
	}
	var out []netip.AddrPort
	for _, r := range match.GetPrefixRanges() {
		if a, err := netip.ParseAddr(r.GetAddressPrefix()); err == nil {
			out = append(out, netip.AddrPortFrom(a, port))
		}
	}
	switch {
	case len(out) > 0:
	case at.Addr().IsUnspecified():
		out = append(out, netip.AddrPortFrom(netip.MustParseAddr(elsewhere), port))
	default:
		out = append(out, netip.AddrPortFrom(at.Addr(), port))
	}
	return out
}

func hcmOf(chain *listenerv3.FilterChain) *hcmv3.HttpConnectionManager {
	for _, f := range chain.GetFilters() {
		hcm := &hcmv3.HttpConnectionManager{}
		if f.GetTypedConfig().MessageIs(hcm) && f.GetTypedConfig().UnmarshalTo(hcm) == nil {
			return hcm
		}
	}
	return nil
}

// routesOf returns the virtual hosts of a connection manager.
func routesOf(w *simulate.World, hcm *hcmv3.HttpConnectionManager) []*routev3.VirtualHost {
	switch s := hcm.GetRouteSpecifier().(type) {
	case *hcmv3.HttpConnectionManager_RouteConfig:
		return s.RouteConfig.GetVirtualHosts()
	case *hcmv3.HttpConnectionManager_Rds:
		if rc, err := w.RouteConfig(s.Rds.GetRouteConfigName()); err == nil {
			return rc.GetVirtualHosts()
		}
	}
	return nil
}

// requests adds a call for each domain, and for each route with the first domain. fixed is set if the address of base is the
// only one; otherwise the virtual host's addresses are called.
func (m *maker) requests(w *simulate.World, hcm *hcmv3.HttpConnectionManager, base simulate.Call, fixed bool) {
	_, port, _ := net.SplitHostPort(base.To)
	for _, vh := range routesOf(w, hcm) {
		names, addresses := splitDomains(vh.GetDomains())
		if len(addresses) == 0 || fixed {
			addresses = []string{""}
		}
		for _, a := range addresses {
			c := base
			if a != "" {
				c.To = net.JoinHostPort(a, port)
				c.Host, c.Path = c.To, "/"
				m.add(c)
			}
			for i, name := range names {
				c.Host, c.Path = hostPort(name, port), "/"
				m.add(c)
				if i == 0 {
					m.routes(vh, c)
				}
			}
			if len(names) == 0 {
				m.routes(vh, c)
			}
		}
	}
}

// hostPort is what clients write in the authority.
func hostPort(host, port string) string {
	if port == "80" || port == "443" {
		return host
	}
	return net.JoinHostPort(host, port)
}

// routes adds a call for each route of a virtual host.
func (m *maker) routes(vh *routev3.VirtualHost, base simulate.Call) {
	for _, r := range vh.GetRoutes() {
		request, ok := sample.RequestFor(r.GetMatch())
		if !ok || request.Scheme != "" && request.Scheme != schemeOf(base) {
			m.untried[fmt.Sprint(base, r.GetMatch())] = true
			continue
		}
		c := base
		c.Method, c.Path, c.Host, c.Headers = request.Method, request.Path, cmp.Or(request.Host, base.Host), request.Headers
		if r.GetMatch().GetGrpc() != nil {
			c = grpc(c)
		}
		m.add(c)
		if r.GetMatch().GetRuntimeFraction() != nil {
			c.Dice = 99.9999
			m.add(c)
		}
	}
}

// schemeOf returns the scheme of a request, as the proxy that reads it sees it.
func schemeOf(c simulate.Call) string {
	if c.Protocol == simulate.HTTPS {
		return "https"
	}
	return "http"
}

// grpc returns a call as gRPC. Inside of TLS the simulator has no protocol for it, but its method and headers decide.
func grpc(c simulate.Call) simulate.Call {
	if c.SNI == "" {
		c.Protocol = simulate.GRPC
		return c
	}
	headers := map[string]string{"content-type": "application/grpc", "te": "trailers"}
	maps.Copy(headers, c.Headers)
	c.Method, c.Headers = cmp.Or(c.Method, http.MethodPost), headers
	return c
}

// splitDomains returns names that domains cover, and the addresses among them, without ports.
func splitDomains(domains []string) (names, addresses []string) {
	for _, d := range domains {
		if host, _, err := net.SplitHostPort(d); err == nil {
			d = host
		}
		d = strings.Trim(d, "[]")
		if _, err := netip.ParseAddr(d); err == nil {
			add(&addresses, d)
			continue
		}
		add(&names, concrete(d))
	}
	return names, addresses
}

// concrete returns a name that a domain or server name covers.
func concrete(d string) string {
	if d == "*" {
		return unknownHost
	}
	return strings.Replace(d, "*", "any", 1)
}

// entering adds calls from outside to a listener of a gateway.
func (m *maker) entering(w *simulate.World, l *listenerv3.Listener) {
	for _, at := range simulate.Addresses(l) {
		ip := at.Addr().String()
		if at.Addr().IsUnspecified() {
			ip = m.proxy.ip()
		}
		to := net.JoinHostPort(ip, strconv.Itoa(int(at.Port())))
		plain := simulate.Call{To: to, Direct: true}
		for _, chain := range chainsOf(l) {
			m.throughChain(w, chain, plain)
		}
		m.add(simulate.Call{To: to, Direct: true, Protocol: simulate.TCP})
		m.add(simulate.Call{To: to, Direct: true, Protocol: simulate.TLS, SNI: unknownHost})
		m.add(simulate.Call{To: to, Direct: true, Host: unknownHost, Path: "/"})
	}
}

// throughChain adds calls to one filter chain of a gateway.
func (m *maker) throughChain(w *simulate.World, chain *listenerv3.FilterChain, plain simulate.Call) {
	hcm := hcmOf(chain)
	names := chain.GetFilterChainMatch().GetServerNames()
	if chain.GetTransportSocket() == nil {
		for _, n := range names {
			m.add(withTLS(plain, concrete(n)))
		}
		if hcm != nil {
			m.requests(w, hcm, plain, true)
		}
		return
	}
	if len(names) == 0 {
		names = []string{unknownHost}
	}
	client, _ := sample.ClientName(chain)
	for _, n := range names {
		c := withTLS(plain, concrete(n))
		c.ALPN = []string{"h2", "http/1.1"}
		for _, principal := range []string{"", client} {
			c.Principal = principal
			m.add(c)
			if hcm != nil {
				https := c
				https.Protocol = simulate.HTTPS
				m.requests(w, hcm, https, true)
			}
		}
	}
}

// arriving adds calls from outside to a workload.
func (m *maker) arriving(w *simulate.World, l *listenerv3.Listener) {
	ports := []uint32{unusedPort}
	for _, chain := range chainsOf(l) {
		if p := chain.GetFilterChainMatch().GetDestinationPort().GetValue(); p != 0 && !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	direct := !l.GetUseOriginalDst().GetValue() && len(ports) == 1
	if direct { // a listener for the bind address of a Sidecar
		for _, at := range simulate.Addresses(l) {
			m.modes(simulate.Call{To: at.String(), Direct: true}, nil)
		}
		return
	}
	for _, port := range ports {
		s := sampler{dropped: map[string]bool{}}
		var samples []operation
		for _, chain := range chainsOf(l) {
			if p := chain.GetFilterChainMatch().GetDestinationPort().GetValue(); p == port || p == 0 {
				samples = append(samples, s.operationsOf(chain)...)
				if hcm := hcmOf(chain); hcm != nil {
					m.inboundRoutes(w, hcm, port)
				}
			}
		}
		m.modes(simulate.Call{To: net.JoinHostPort(m.proxy.ip(), strconv.Itoa(int(port))), Inbound: true}, samples)
		for _, o := range samples {
			delete(s.dropped, fmt.Sprint(o))
		}
		for o := range s.dropped {
			m.untried[fmt.Sprint(port, " ", o)] = true
		}
	}
}

// inboundRoutes adds a call with mutual TLS for each inbound route, which EnvoyFilters and Sidecars may add.
func (m *maker) inboundRoutes(w *simulate.World, hcm *hcmv3.HttpConnectionManager, port uint32) {
	base := mutual(simulate.Call{To: net.JoinHostPort(m.proxy.ip(), strconv.Itoa(int(port))), Inbound: true, Path: "/"}, meshALPN, stranger)
	for _, vh := range routesOf(w, hcm) {
		for _, name := range vh.GetDomains() {
			c := base
			c.Host = concrete(name)
			m.routes(vh, c)
		}
	}
}

// The ALPN of mesh clients, and of one that uses TCP.
var (
	meshALPN    = []string{"istio-http/1.1", "istio", "http/1.1"}
	meshTCPALPN = []string{"istio-peer-exchange", "istio"}
)

// stranger is a workload of the mesh that no policy names.
const stranger = "spiffe://cluster.local/ns/any-namespace/sa/any-account"

// mutual returns a call inside of mutual TLS.
func mutual(c simulate.Call, alpn []string, principal string) simulate.Call {
	c.Protocol, c.ALPN, c.Principal, c.SNI = simulate.HTTPS, alpn, principal, "outbound_.80_._.any.example.com"
	if alpn[0] == meshTCPALPN[0] {
		c.Protocol = simulate.TLS
	}
	return c
}

// modes adds calls to a port in all modes of transport, and for each operation that a policy names.
func (m *maker) modes(base simulate.Call, operations []operation) {
	plain := base
	plain.Host, plain.Path = cmp.Or(base.Host, "any.example.com"), "/"
	m.add(plain)
	tcp := base
	tcp.Protocol = simulate.TCP
	m.add(tcp)
	m.add(mutual(plain, meshALPN, stranger))
	m.add(mutual(base, meshTCPALPN, stranger))
	foreign := mutual(plain, []string{"h2", "http/1.1"}, "") // TLS of no mesh
	foreign.SNI = "any.example.com"
	m.add(foreign)
	token := mutual(plain, meshALPN, stranger)
	token.Headers = map[string]string{"authorization": "Bearer invalid"}
	m.add(token)
	for _, o := range operations {
		c := plain
		c.Method, c.Path, c.Headers = o.Method, cmp.Or(o.Path, "/"), maps.Clone(o.Headers)
		c.Host = cmp.Or(o.host, c.Host)
		if o.from != "" {
			c.From = net.JoinHostPort(o.from, "40000")
		}
		m.add(c)
		m.add(mutual(c, meshALPN, cmp.Or(o.principal, stranger)))
		if o.principal != "" {
			m.add(mutual(c, meshALPN, stranger))
			m.add(mutual(base, meshTCPALPN, o.principal))
		}
	}
}
