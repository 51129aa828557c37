package preview

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// touched is what the differing resources of a client are about.
type touched struct {
	services map[model.Host]bool // all services of both sides
	hosts    map[model.Host]bool
	ports    map[uint32]bool // all services there
	address  map[string]bool // "IP_port", the names of listeners for one address
	names    map[target]bool // hosts that are no service
	outside  bool            // calls to unknown destinations

	seen map[*routev3.VirtualHost]bool
}

func (c *comparison) touchedBy(d *resourceDiff) *touched {
	t := &touched{services: c.services, hosts: map[model.Host]bool{}, ports: map[uint32]bool{}, address: map[string]bool{}, names: map[target]bool{}, seen: map[*routev3.VirtualHost]bool{}}
	if d == nil {
		return t
	}
	for typ, names := range d.names {
		for _, name := range names {
			t.add(typ, name, d)
		}
	}
	return t
}

func (t *touched) add(typ resource.Type, name string, d *resourceDiff) {
	switch typ {
	case resource.Cluster, resource.Endpoints:
		t.cluster(name, d)
	case resource.VirtualHost:
		for _, w := range []*world{d.before, d.after} {
			for _, vh := range w.VirtualHosts {
				if vh.GetName() == name {
					t.virtualHost(vh)
				}
			}
		}
	case resource.VHDSRouteConfig:
		if port, ok := number(name); ok {
			t.ports[port] = true
		}
	case resource.Listener:
		t.listener(name)
		t.serverNames(name, d)
	}
}

// cluster touches the host of a cluster, and the hosts whose routes or filter chains lead to it.
func (t *touched) cluster(name string, d *resourceDiff) {
	if c, ok := resourcename.ParseCluster(name); ok && c.Direction == resourcename.Outbound {
		t.hosts[c.Host] = true
	} else if !ok {
		t.outside = true
	}
	for _, w := range []*world{d.before, d.after} {
		for _, c := range w.tables {
			if c == nil {
				continue
			}
			u := c.usersOf(name)
			for _, vh := range u.virtualHosts {
				t.virtualHost(vh)
			}
			for _, l := range u.chains {
				t.chain(l.listener, l.chain)
			}
		}
	}
}

// virtualHost touches the service of a virtual host, or else the hosts of its domains.
func (t *touched) virtualHost(vh *routev3.VirtualHost) {
	if t.seen[vh] {
		return
	}
	t.seen[vh] = true
	service := false
	var hosts []model.Host
	for _, d := range vh.GetDomains() {
		if host, _, err := net.SplitHostPort(d); err == nil {
			d = host
		}
		host := model.Host(d)
		t.outside = t.outside || d == "*"
		t.hosts[host] = true
		service = service || t.services[host]
		hosts = append(hosts, host)
	}
	routeConfig := table.RouteConfigOf(vh.GetName())
	port, ok := number(routeConfig[strings.LastIndexByte(routeConfig, ':')+1:])
	if service || !ok {
		return // the other domains are short names and addresses of the service
	}
	for _, h := range hosts {
		if h != "*" && !slices.ContainsFunc(hosts, func(o model.Host) bool { return strings.HasPrefix(string(o), string(h)+".") }) {
			t.names[target{host: h, port: port, protocol: model.ProtocolHTTP}] = true
		}
	}
}

func (t *touched) listener(name string) {
	ip, port, ok := strings.Cut(name, "_")
	n, valid := number(port)
	switch {
	case !ok || !valid:
		t.outside = t.outside || name == "virtualOutbound"
	case ip == "0.0.0.0" || ip == "::":
		t.ports[n] = true
	default:
		t.address[name] = true
	}
}

// serverNames touches the server names of the filter chains of a listener that differ.
func (t *touched) serverNames(name string, d *resourceDiff) {
	before, after := d.before.named(name), d.after.named(name)
	was, is := namedChains(before), namedChains(after)
	for content, chain := range was {
		if is[content] == nil {
			t.chain(before, chain)
		}
	}
	for content, chain := range is {
		if was[content] == nil {
			t.chain(after, chain)
		}
	}
}

// namedChains returns the filter chains for server names of a listener for a workload's own calls, by their content.
func namedChains(l *listenerv3.Listener) map[string]*listenerv3.FilterChain {
	out := map[string]*listenerv3.FilterChain{}
	for _, chain := range l.GetFilterChains() {
		if l.GetTrafficDirection() != corev3.TrafficDirection_INBOUND && len(chain.GetFilterChainMatch().GetServerNames()) > 0 {
			out[encoded(chain)] = chain
		}
	}
	return out
}

func encoded(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return ""
	}
	return string(b)
}

// chain touches the hosts that a filter chain of a listener for a workload's own calls is for.
func (t *touched) chain(l *listenerv3.Listener, chain *listenerv3.FilterChain) {
	at := l.GetAddress().GetSocketAddress()
	match := chain.GetFilterChainMatch()
	address := at.GetAddress()
	if ip, err := netip.ParseAddr(address); err != nil || ip.IsUnspecified() {
		address = ""
	}
	for _, name := range match.GetServerNames() {
		if host := model.Host(name); t.services[host] {
			t.hosts[host] = true
		} else {
			t.names[target{host: host, port: at.GetPortValue(), protocol: model.ProtocolTLS, address: address}] = true
		}
	}
	for _, r := range match.GetPrefixRanges() {
		t.address[fmt.Sprintf("%s_%d", r.GetAddressPrefix(), at.GetPortValue())] = true
	}
	if len(match.GetServerNames())+len(match.GetPrefixRanges()) == 0 {
		t.listener(l.GetName())
	}
}

func (t *touched) touches(s *model.Service, p *model.ServicePort) bool {
	if t.hosts[s.Hostname] || t.ports[p.Number] {
		return true
	}
	return slices.ContainsFunc(s.Addresses, func(a netip.Prefix) bool { return t.address[fmt.Sprintf("%s_%d", a.Addr(), p.Number)] })
}

// others returns targets that are no service.
func (t *touched) others() []target {
	var out []target
	for at := range t.names {
		out = append(out, at)
	}
	slices.SortFunc(out, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.port, b.port), cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.address, b.address))
	})
	return out
}

func number(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint32(n), err == nil
}

// named returns a listener; nil: there is none.
func (w *world) named(listener string) *listenerv3.Listener {
	for _, l := range w.Listeners {
		if l.GetName() == listener {
			return l
		}
	}
	return nil
}

// users are what leads to a cluster.
type users struct {
	virtualHosts []*routev3.VirtualHost
	chains       []chainOf
}

type chainOf struct {
	listener *listenerv3.Listener
	chain    *listenerv3.FilterChain
}

// usersOf returns what leads to a cluster.
func (c *content) usersOf(cluster string) *users {
	if c.users == nil {
		c.users = map[string]*users{}
		c.addUsers()
	}
	if u := c.users[cluster]; u != nil {
		return u
	}
	return &users{}
}

func (c *content) addUsers() {
	user := func(cluster string) *users {
		u := c.users[cluster]
		if u == nil {
			u = &users{}
			c.users[cluster] = u
		}
		return u
	}
	for _, vh := range c.VirtualHosts {
		for _, r := range vh.GetRoutes() {
			for _, name := range append(clustersOf(r), mirrorsOf(r)...) {
				if u := user(name); !slices.Contains(u.virtualHosts, vh) {
					u.virtualHosts = append(u.virtualHosts, vh)
				}
			}
		}
	}
	for _, l := range c.Listeners {
		if l.GetTrafficDirection() == corev3.TrafficDirection_INBOUND {
			continue
		}
		for _, chain := range slices.Concat(l.GetFilterChains(), defaultChain(l)) {
			for _, name := range passedTo(chain) {
				u := user(name)
				u.chains = append(u.chains, chainOf{l, chain})
			}
		}
	}
}

// clustersOf returns the clusters to which a route sends calls.
func clustersOf(r *routev3.Route) []string {
	var out []string
	if name := r.GetRoute().GetCluster(); name != "" {
		out = append(out, name)
	}
	for _, weighted := range r.GetRoute().GetWeightedClusters().GetClusters() {
		out = append(out, weighted.GetName())
	}
	return out
}

func mirrorsOf(r *routev3.Route) []string {
	var out []string
	for _, m := range r.GetRoute().GetRequestMirrorPolicies() {
		out = append(out, m.GetCluster())
	}
	return out
}

// passedTo returns the clusters to which a filter chain passes connections.
func passedTo(chain *listenerv3.FilterChain) []string {
	var out []string
	for _, f := range chain.GetFilters() {
		tcp := &tcpv3.TcpProxy{}
		if !f.GetTypedConfig().MessageIs(tcp) || f.GetTypedConfig().UnmarshalTo(tcp) != nil {
			continue
		}
		if name := tcp.GetCluster(); name != "" {
			out = append(out, name)
		}
		for _, weighted := range tcp.GetWeightedClusters().GetClusters() {
			out = append(out, weighted.GetName())
		}
	}
	return out
}
