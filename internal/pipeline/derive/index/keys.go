package index

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// Keys returns the groups that a proxy belongs to.
func (x *Index) Keys(p *model.Proxy) (outbound, inbound GroupKey) {
	own := p.Labels
	p = x.endpoints.withPorts(x.withTopology(p))
	if p.Names {
		return x.namesKeys(p)
	}
	if p.Extensions {
		return x.extensionKeys(p)
	}
	base := GroupKey{
		Type: p.Type, Namespace: p.Namespace, Interception: p.Interception, Domain: p.ClusterDomain(),
		Families: p.Families(), Loopback: p.OnLoopback(), Identity: p.Identity, Modules: p.Modules, Files: p.Files,
		Uncounted: p.Uncounted, HTTP10: p.HTTP10, Headers: p.Headers, Tracing: p.Tracing, Connections: p.Connections,
	}
	base.Version, base.Metadata = x.proxies.of(p)
	if p.Type == model.ProxyRouter {
		return x.routerKeys(p, own, base)
	}
	sidecar := x.sidecarFor(p)
	if sidecar != nil {
		base.Sidecar = sidecar.Key
	}
	base.Unprivileged = p.Unprivileged && opensPorts(p, sidecar)
	outbound = base
	outbound.ScopedRoutes, outbound.AutoAddress = p.ScopedRoutes, x.auto.usedBy(p)
	if p.OnDemand {
		outbound.Asking = x.asking(x.deliverySetting(p), seenBy{p.Namespace, base.Sidecar})
	}
	outbound.Labels = CanonicalLabels(x.labels.relevant(p.Labels))
	if outbound.OnDemand() {
		outbound.Labels = CanonicalLabels(x.labels.relevant(p.Labels, x.naming))
	}
	outbound.Account = x.accountOf(p)
	x.localityUsage.locate(&outbound, x.endpoints, p)
	if x.sharesHeadlessPort(p, sidecar) {
		outbound.IP = addressOf(p).name
	}
	inbound = base
	inbound.Inbound = true
	inbound.setLabels(p, own)
	inbound.Ports = canonicalPorts(p.NamedPorts)
	inbound.AnyWorker = p.AnyWorker
	if at := addressOf(p); bindsToIP(p, sidecar) || x.endpoints.addsAt(at, own, p.NamedPorts) {
		inbound.IP = at.name
	}
	return outbound, inbound
}

// nothing is the key of an empty group, for proxies that need only one.
var nothing = GroupKey{Names: true, Inbound: true}

// namesKeys are the groups of a sidecar's DNS proxy. One has the names of hosts, for all proxies that see the same hosts.
func (x *Index) namesKeys(p *model.Proxy) (names, none GroupKey) {
	names = GroupKey{Type: p.Type, Names: true, Namespace: p.Namespace, Domain: p.ClusterDomain()}
	if s := x.sidecarFor(p); s != nil {
		names.Sidecar = s.Key
	}
	if x.auto.usedBy(p) {
		names.AutoAddress, names.Families = true, p.Families()
	}
	return names, nothing
}

// extensionKeys are the groups of a sidecar's agent. One has the plugins whose modules the agent fetches and the patches of
// Envoy's bootstrap, for all workloads that the same policies select.
func (x *Index) extensionKeys(p *model.Proxy) (extensions, none GroupKey) {
	extensions = GroupKey{Type: p.Type, Extensions: true, Namespace: p.Namespace, Labels: CanonicalLabels(x.labels.relevant(p.Labels))}
	if x.pulls[p.Namespace] > 0 && p.Verified {
		extensions.Account = p.ServiceAccount
	}
	extensions.Version, extensions.Metadata = x.proxies.of(p)
	return extensions, nothing
}

// routerKeys are the groups of a gateway. It has only one: no application is behind it. Its listeners come from Gateways,
// and its routes from VirtualServices that are bound to them. As in Istio, Sidecars do not count. Gateways and policies
// select by any label, so that the key has all labels; replicas have the same.
func (x *Index) routerKeys(p *model.Proxy, own map[string]string, base GroupKey) (outbound, none GroupKey) {
	outbound = base
	outbound.Interception = ""
	outbound.setLabels(p, own)
	outbound.Ports = canonicalPorts(p.NamedPorts)
	outbound.Topology = p.Topology
	if p.Verified {
		outbound.Account = p.ServiceAccount
	}
	if at := addressOf(p); x.endpoints.addsAt(at, own, p.NamedPorts) {
		outbound.IP = at.name
	}
	x.localityUsage.locate(&outbound, x.endpoints, p)
	return outbound, nothing
}

// setLabels makes all labels of a proxy count, and own, those without topology.
func (k *GroupKey) setLabels(p *model.Proxy, own map[string]string) {
	k.Labels = CanonicalLabels(p.Labels)
	if !maps.Equal(p.Labels, own) {
		k.OwnLabels = cmp.Or(CanonicalLabels(own), noLabels)
	}
}

// accountOf is the service account of a proxy, if that decides which Secrets it gets.
func (x *Index) accountOf(p *model.Proxy) string {
	if x.credentials[p.Namespace] == 0 || !p.Verified {
		return ""
	}
	return p.ServiceAccount
}

// addressOf is a proxy's first address, under its namespace.
func addressOf(p *model.Proxy) name {
	if len(p.IPs) == 0 {
		return name{}
	}
	return name{p.Namespace, p.IPs[0]}
}

// bindsToIP reports whether the workload's address is part of its inbound configuration.
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

// sharesHeadlessPort reports whether the workload listens at its address for a port of headless services that it may belong
// to. Other members of such a service have an outbound listener for that address.
func (x *Index) sharesHeadlessPort(p *model.Proxy, s *model.Sidecar) bool {
	return s != nil && p.Interception != model.InterceptNone && slices.ContainsFunc(s.Ingress, func(in model.IngressListener) bool {
		return opensOwnAddress(&in) && x.headless[portIn{p.Namespace, in.Port.Number}]+x.headless[portIn{port: in.Port.Number}] > 0
	})
}

// opensPorts reports whether applications or clients connect to some listener of a proxy without redirection.
func opensPorts(p *model.Proxy, s *model.Sidecar) bool {
	if p.Interception == model.InterceptNone || s == nil {
		return p.Interception == model.InterceptNone
	}
	return slices.ContainsFunc(s.Egress, func(e model.EgressListener) bool { return e.Capture == model.CaptureNone }) ||
		slices.ContainsFunc(s.Ingress, func(in model.IngressListener) bool { return in.Capture == model.CaptureNone })
}

func canonicalPorts(ports map[string]uint32) string {
	text := make(map[string]string, len(ports))
	for n, p := range ports {
		text[n] = fmt.Sprint(p)
	}
	return CanonicalLabels(text)
}

// sidecarFor selects a Sidecar as Istio does: one whose selector matches, then the namespace's default, then the default
// of the root namespace.
func (x *Index) sidecarFor(p *model.Proxy) *model.Sidecar {
	root := x.mesh.RootNamespace
	if s := pickSidecar(x.sidecars[p.Namespace], p, root, true); s != nil {
		return s
	}
	if s := pickSidecar(x.sidecars[p.Namespace], p, root, false); s != nil {
		return s
	}
	return pickSidecar(x.sidecars[root], p, root, false)
}

// pickSidecar returns the oldest Sidecar for a proxy among those with a selector, or among those without one.
func pickSidecar(all map[model.Key]*model.Sidecar, p *model.Proxy, root string, selecting bool) *model.Sidecar {
	var best *model.Sidecar
	for _, s := range all {
		if (len(s.Selector) > 0) != selecting || !s.IsFor(p.Namespace, p.Labels, root) {
			continue
		}
		if best == nil || model.Older(s, best) {
			best = s
		}
	}
	return best
}
