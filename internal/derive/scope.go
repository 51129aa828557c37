package derive

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// ScopeKey tells scopes apart. Proxies with equal keys see the same.
type ScopeKey struct {
	Inbound      bool // the workload's own listeners; else what it can call
	Type         model.ProxyType
	Namespace    string
	Sidecar      model.Key // the Sidecar that selects it; zero: none
	Interception model.Interception
	Domain       string             // of the cluster
	Labels       string             // outbound: those that anybody asks for; inbound, and of routers: all
	Locality     model.Locality     // where it matters to endpoints
	Node         string             // likewise
	IP           string             // inbound: where listeners are bound to it, or services name it; of routers: the latter
	Ports        string             // inbound, and of routers: named ports, "name=number,..."
	Families     model.Families     // of its proxies' addresses
	Identity     bool               // its proxies have certificates
	Account      string             // outbound: the service account that its proxies are known to have, where secrets are for some
	Version      string             // of its proxies, where EnvoyFilters ask for it
	Metadata     string             // of its proxies: what EnvoyFilters ask for, as Labels
	Modules      bool               // its proxies' agents fetch modules of plugins
	Extensions   bool               // what such agents ask for, and nothing else
	Uncounted    bool               // its proxies keep no statistics of clusters' answers by code
	AnyWorker    bool               // inbound: connections need not be spread evenly over its proxies' workers
	Unprivileged bool               // its proxies listen where applications connect, and cannot on ports below 1024
	Names        bool               // what applications ask DNS for, and nothing else
	Topology     model.Topology     // of routers: what is before them, as they say
	Headers      model.ProxyHeaders // that its proxies set, as they say
	Tracing      model.ProxyTracing // of its proxies, as their Pods say
	Scoped       bool               // outbound: large route configurations are split into buckets
	Split        SplitSet           // outbound: route configurations that are, whatever their size, and whether or not others are, as its proxies have them so
	Generation   int                // outbound: 0, or 1 for proxies that need not have the buckets that 0 kept when they came
}

// String names a scope for people: "outbound/shop", with what else tells it apart.
func (k ScopeKey) String() string {
	if k.Names && k.Inbound {
		return "nothing"
	}
	parts := []string{k.direction(), k.Namespace}
	if k.Sidecar.Name != "" {
		parts = append(parts, "sidecar="+k.Sidecar.Namespace+"."+k.Sidecar.Name)
	}
	for _, p := range []string{k.Labels, k.Locality.String(), k.Node, k.IP, k.Version, k.Metadata} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	for _, p := range k.traits() {
		if p.is {
			parts = append(parts, p.text)
		}
	}
	return strings.Join(parts, "/")
}

// direction is what a scope is of, for people.
func (k ScopeKey) direction() string {
	switch {
	case k.Type == model.ProxyRouter && !k.Names:
		return "router"
	case k.Names:
		return "names"
	case k.Extensions:
		return "extensions"
	case k.Inbound:
		return "inbound"
	}
	return "outbound"
}

// trait is what tells few scopes from most others.
type trait struct {
	is   bool
	text string
}

func (k ScopeKey) traits() []trait {
	return []trait{
		{k.Families != model.IPv4, k.Families.String()},
		{k.Account != "", "account=" + k.Account},
		{k.Identity, "identity"},
		{k.Modules, "modules"},
		{k.Uncounted, "uncounted"},
		{k.AnyWorker, "any-worker"},
		{k.Unprivileged, "unprivileged"},
		{k.Headers.Said, k.Headers.String()},
		{k.Tracing != "", "tracing=" + string(k.Tracing)},
		{k.Topology.Said, k.Topology.String()},
		{k.Scoped, "scoped"},
		{k.Split != "", "split=" + strings.ReplaceAll(string(k.Split), " ", ",")},
		{k.Generation > 0, fmt.Sprintf("generation=%d", k.Generation)},
	}
}

// Keys are the scopes that a proxy belongs to.
func (x *Index) Keys(p *model.Proxy) (outbound, inbound ScopeKey) {
	if p.Names {
		return x.namesKeys(p)
	}
	if p.Extensions {
		return x.extensionKeys(p)
	}
	base := ScopeKey{
		Type: p.Type, Namespace: p.Namespace, Interception: p.Interception, Domain: p.ClusterDomain(),
		Families: p.Families(), Identity: p.Identity, Modules: p.Modules, Uncounted: p.Uncounted, Headers: p.Headers,
		Tracing: p.Tracing,
	}
	base.Version, base.Metadata = x.proxies.of(p)
	if p.Type == model.ProxyRouter {
		return x.routerKeys(p, base)
	}
	sidecar := x.sidecarFor(p)
	if sidecar != nil {
		base.Sidecar = sidecar.Key
	}
	base.Unprivileged = p.Unprivileged && opensPorts(p, sidecar)
	outbound = base
	outbound.Scoped = p.ScopedRoutes
	outbound.Labels = x.labels.relevant(p.Labels)
	outbound.Account = x.accountOf(p)
	x.near.locate(&outbound, x.endpoints, p)
	inbound = base
	inbound.Inbound = true
	inbound.Labels = canonicalLabels(p.Labels)
	inbound.Ports = canonicalPorts(p.NamedPorts)
	inbound.AnyWorker = p.AnyWorker
	if at := addressOf(p); bindsToIP(p, sidecar) || len(x.endpoints.at.services[at]) > 0 {
		inbound.IP = at.name
	}
	return outbound, inbound
}

// addressOf is a proxy's first address, under its namespace.
func addressOf(p *model.Proxy) name {
	if len(p.IPs) == 0 {
		return name{}
	}
	return name{p.Namespace, p.IPs[0]}
}

// bindsToIP tells whether the workload's address is part of its inbound configuration.
func bindsToIP(p *model.Proxy, s *model.Sidecar) bool {
	if p.Interception == model.InterceptNone {
		return true
	}
	if s == nil {
		return false
	}
	for i := range s.Ingress {
		in := &s.Ingress[i]
		if in.Capture == model.CaptureNone || strings.HasPrefix(in.Endpoint, "0.0.0.0:") || strings.HasPrefix(in.Endpoint, "[::]:") {
			return true
		}
	}
	return false
}

// opensPorts tells whether some listener of a proxy is not one of those that all connections are led to.
func opensPorts(p *model.Proxy, s *model.Sidecar) bool {
	if p.Interception == model.InterceptNone || s == nil {
		return p.Interception == model.InterceptNone
	}
	return slices.ContainsFunc(s.Egress, func(e model.EgressListener) bool { return e.Capture == model.CaptureNone }) ||
		slices.ContainsFunc(s.Ingress, func(in model.IngressListener) bool { return in.Capture == model.CaptureNone })
}

// opens tells whether the scope's proxies can listen at an address. Where they cannot, Envoy would refuse the
// listener; as in Istio there is none.
func (s *scope) opens(k listenerKey) bool {
	return !s.Key.Unprivileged || k.port >= model.PrivilegedPorts || !model.IsIP(k.address)
}

func canonicalPorts(ports map[string]uint32) string {
	text := make(map[string]string, len(ports))
	for n, p := range ports {
		text[n] = fmt.Sprint(p)
	}
	return canonicalLabels(text)
}

// egress is one egress listener of a scope.
type egress struct {
	model.EgressListener
	// routeConfig is set for listeners with a port: the route configuration's name.
	routeConfig string
}

// captureNone tells whether applications connect to the listener themselves.
func (e *egress) captureNone(mode model.Interception) bool {
	return e.Capture == model.CaptureNone || e.Capture == model.CaptureDefault && mode == model.InterceptNone
}

// protocol is what a service's port is taken for: what the listener says, if it does.
func (e *egress) protocol(port *model.ServicePort) model.Protocol {
	if e.Port != nil && e.Port.Protocol != model.ProtocolAuto && e.Port.Protocol != "" {
		return e.Port.Protocol
	}
	return port.Protocol
}

// imports tells whether the listener's hosts select host h of namespace ns: some entry
// has to, and none may exclude it.
func (e *egress) imports(ns string, h model.Host) bool { return e.selects(ns, h, model.Host.Matches) }

// importsAny tells whether a virtual service with these hosts is imported: one of its
// hosts overlaps with the listener's selection, and is not excluded.
func (e *egress) importsAny(ns string, hosts []model.Host) bool {
	return slices.ContainsFunc(hosts, func(h model.Host) bool { return e.selects(ns, h, model.Host.Overlaps) })
}

// selects tells whether some entry's host meets h, and none excludes all of it.
func (e *egress) selects(ns string, h model.Host, meets func(entry, h model.Host) bool) bool {
	found := false
	for _, sel := range e.Hosts {
		switch {
		case sel.Namespace != "*" && sel.Namespace != ns:
		case !sel.Exclude:
			found = found || meets(sel.Host, h)
		case sel.Host.Matches(h):
			return false
		}
	}
	return found
}

// everything is the egress listener of a namespace without a Sidecar.
var everything = egress{EgressListener: model.EgressListener{Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}}}}

// egressOf lists a scope's egress listeners.
func egressOf(s *model.Sidecar) []egress {
	if s == nil || len(s.Egress) == 0 {
		return []egress{everything}
	}
	out := make([]egress, 0, len(s.Egress))
	first := map[uint32]string{} // the bind address of a port's first listener
	for _, l := range s.Egress {
		e := egress{EgressListener: l}
		if l.Port != nil {
			if _, ok := first[l.Port.Number]; !ok {
				first[l.Port.Number] = l.Bind
			}
			e.routeConfig = fmt.Sprint(l.Port.Number)
			if first[l.Port.Number] != l.Bind {
				e.routeConfig = fmt.Sprintf("%s_%d", l.Bind, l.Port.Number)
			}
		}
		out = append(out, e)
	}
	return out
}

// sees tells whether a service is reachable through any egress listener.
func (s *scope) sees(svc *model.Service) bool {
	if !svc.Visibility.Sees(s.Key.Namespace) {
		return false
	}
	for i := range s.egress {
		if s.egress[i].imports(svc.Namespace, svc.Hostname) {
			return true
		}
	}
	return false
}

// importsRoutes tells whether a virtual service counts in the scope.
func (s *scope) importsRoutes(v *model.VirtualService) bool {
	if !v.Visibility.Sees(s.Key.Namespace) {
		return false
	}
	for i := range s.egress {
		if s.egress[i].importsAny(v.Namespace, v.Hosts) {
			return true
		}
	}
	return false
}
