package derive

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// GroupKey tells scopes apart. Proxies with equal keys see the same.
type GroupKey struct {
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
	Files        bool               // its proxies' agents read files with certificates
	Extensions   bool               // what such agents ask for, and nothing else
	AutoAddress  bool               // outbound, and of names: applications are told the addresses that ServiceEntries get
	Uncounted    bool               // its proxies keep no statistics of clusters' answers by code
	AnyWorker    bool               // inbound: connections need not be spread evenly over its proxies' workers
	Unprivileged bool               // its proxies listen where applications connect, and cannot on ports below 1024
	Names        bool               // what applications ask DNS for, and nothing else
	Topology     model.Topology     // of routers: what is before them, as they say
	Headers      model.ProxyHeaders // that its proxies set, as they say
	Tracing      model.ProxyTracing // of its proxies, as their Pods say
	ScopedRoutes bool               // outbound: large route configurations are split into buckets
	Sharded      ShardedRoutes      // outbound: route configurations that are, whatever their size, and whether or not others are, as its proxies have them so
	Cohort       int                // outbound: 0, or 1 for proxies that need not have the buckets that 0 kept when they came
}

// Origins are the objects that group the proxies: their Sidecar.
func (k *GroupKey) Origins() *model.Origins {
	if k.Sidecar == (model.Key{}) {
		return nil
	}
	return model.OriginsOf(k.Sidecar)
}

// String names a scope for people: "outbound/shop", with what else tells it apart.
func (k GroupKey) String() string {
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
func (k GroupKey) direction() string {
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

func (k GroupKey) traits() []trait {
	return []trait{
		{k.Families != model.IPv4, k.Families.String()},
		{k.Account != "", "account=" + k.Account},
		{k.Identity, "identity"},
		{k.Modules, "modules"},
		{k.Files, "files"},
		{k.AutoAddress, "auto-addresses"},
		{k.Uncounted, "uncounted"},
		{k.AnyWorker, "any-worker"},
		{k.Unprivileged, "unprivileged"},
		{k.Headers.Said, k.Headers.String()},
		{k.Tracing != "", "tracing=" + string(k.Tracing)},
		{k.Topology.Said, k.Topology.String()},
		{k.ScopedRoutes, "scoped"},
		{k.Sharded != "", "split=" + strings.ReplaceAll(string(k.Sharded), " ", ",")},
		{k.Cohort > 0, fmt.Sprintf("generation=%d", k.Cohort)},
	}
}

// Keys are the scopes that a proxy belongs to.
func (x *Index) Keys(p *model.Proxy) (outbound, inbound GroupKey) {
	if p.Names {
		return x.namesKeys(p)
	}
	if p.Extensions {
		return x.extensionKeys(p)
	}
	base := GroupKey{
		Type: p.Type, Namespace: p.Namespace, Interception: p.Interception, Domain: p.ClusterDomain(),
		Families: p.Families(), Identity: p.Identity, Modules: p.Modules, Files: p.Files,
		Uncounted: p.Uncounted, Headers: p.Headers, Tracing: p.Tracing,
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
	outbound.ScopedRoutes, outbound.AutoAddress = p.ScopedRoutes, x.auto.usedBy(p)
	outbound.Labels = x.labels.relevant(p.Labels)
	outbound.Account = x.accountOf(p)
	x.localityUsage.locate(&outbound, x.endpoints, p)
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
func (s *proxyGroup) opens(k listenerKey) bool {
	return !s.Key.Unprivileged || k.port >= model.PrivilegedPorts || !model.IsIP(k.address)
}

func canonicalPorts(ports map[string]uint32) string {
	text := make(map[string]string, len(ports))
	for n, p := range ports {
		text[n] = fmt.Sprint(p)
	}
	return canonicalLabels(text)
}
