package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// conflicts checks objects that claim the same thing.
func (c serviceChecks) conflicts() {
	c.sharedHosts()
	c.sharedRules()
	c.sharedPorts()
	for _, ns := range slices.Sorted(maps.Keys(c.sidecars)) {
		c.namespaceSidecars(c.sidecars[ns])
	}
}

// sharedHosts reports hosts that two VirtualServices route for the same clients. Only the rules of the older one
// apply to these clients.
func (c serviceChecks) sharedHosts() {
	byHost := map[model.Host][]*model.VirtualService{}
	for _, v := range c.virtuals {
		for _, h := range v.MeshHosts() {
			if v.InMesh() {
				byHost[h] = append(byHost[h], v)
			}
		}
	}
	for h, list := range byHost {
		slices.SortFunc(list, byAge)
		for i, v := range list {
			j := slices.IndexFunc(list[:i], func(o *model.VirtualService) bool {
				return sharesClients(v, o) && hides(o, v) && !keepsClients(v, o, h)
			})
			if j < 0 {
				continue
			}
			c.errorf(code.HostRoutedTwice, v, fmt.Sprintf("spec.hosts[%d]", slices.Index(v.Hosts, h)),
				"%s is already routed by %s, so these routes have no effect; merge the two", h, list[j].Key)
		}
	}
}

func byAge[T model.Object](a, b T) int { return model.CompareAge(a, b) }

// sharesClients reports whether both apply to the clients of some namespace, so that the older one decides. A
// VirtualService that is exported to a few namespaces takes precedence there over one that is exported to all, and
// one of the client's namespace over those of others. Clients have private routes in this way.
func sharesClients(a, b *model.VirtualService) bool {
	if a.Visibility.Private != b.Visibility.Private {
		return false
	}
	return !a.Visibility.Private || slices.ContainsFunc(a.Visibility.Namespaces, func(ns string) bool {
		return b.Visibility.Sees(ns) && (a.Namespace == ns) == (b.Namespace == ns)
	})
}

// keepsClients reports whether clients obey v for host h although o is older. Routes of the Gateway API merge, those of the
// client's namespace precede others, and those of other namespaces than the host's are for their own namespace only.
func keepsClients(v, o *model.VirtualService, h model.Host) bool {
	return v.Kind.IsKubernetesRoute() || !o.ForClients("", h) || !o.ForPort(h, 0)
}

// hides reports whether rules of b match calls that a decides already, for every client.
func hides(a, b *model.VirtualService) bool {
	requests := func(r model.HTTPRoute) bool {
		return len(r.Matches) == 0 || slices.ContainsFunc(r.Matches, func(m model.HTTPMatch) bool {
			return m.Port == 0 && len(m.SourceLabels)+len(m.Gateways) == 0 && m.SourceNamespace == ""
		})
	}
	connections := func(r model.TCPRoute) bool {
		return len(r.Matches) == 0 || slices.ContainsFunc(r.Matches, func(m model.L4Match) bool {
			return m.Port == 0 && len(m.Destinations)+len(m.SourceLabels)+len(m.Gateways) == 0 && m.SourceNamespace == ""
		})
	}
	return len(b.HTTP) > 0 && slices.ContainsFunc(a.HTTP, requests) || len(b.TCP) > 0 && slices.ContainsFunc(a.TCP, connections)
}

// sharedRules reports destination rules of one namespace for the same host.
func (c serviceChecks) sharedRules() {
	for h, list := range c.rules {
		slices.SortFunc(list, byAge)
		for i, r := range list {
			j := slices.IndexFunc(list[:i], func(o *model.DestinationRule) bool {
				return o.Namespace == r.Namespace && maps.Equal(o.WorkloadSelector, r.WorkloadSelector)
			})
			if j >= 0 {
				c.warnf(code.TargetTwice, r, "spec.host", "%s already has %s, whose traffic policy is used; merge the two", h, list[j].Key)
			}
		}
	}
}

// sharedPorts reports Services with one selector of which one has HTTP at a port of the workloads and the other has not.
func (c serviceChecks) sharedPorts() {
	type place struct{ namespace, selector, port string }
	first := map[place]*model.Service{}
	http := map[place]bool{}
	for _, s := range c.services {
		if !s.IsKubernetes() || len(s.Selector) == 0 {
			continue
		}
		for i := range s.Ports {
			p := &s.Ports[i]
			if p.Protocol == model.ProtocolAuto || p.Protocol == model.ProtocolUDP {
				continue
			}
			at := place{s.Namespace, labelText(s.Selector), cmp.Or(p.TargetName, fmt.Sprint(workloadPort(p)))}
			if other := first[at]; other == nil {
				first[at], http[at] = s, p.Protocol.IsHTTP()
			} else if http[at] != p.Protocol.IsHTTP() {
				c.warnf(code.TwoProtocols, s, fmt.Sprintf("spec.ports[%d]", i), "has protocol %s, but %s has another one for port %s of the same workloads, and their sidecars serve one of the two; use one protocol", p.Protocol, other.Key, at.port)
			}
		}
	}
}

// namespaceSidecars reports Sidecars that are for the same workloads.
func (c serviceChecks) namespaceSidecars(list []*model.Sidecar) {
	slices.SortFunc(list, byAge)
	for i, s := range list {
		j := slices.IndexFunc(list[:i], func(o *model.Sidecar) bool { return maps.Equal(o.Selector, s.Selector) })
		if j < 0 {
			continue
		}
		what := cmp.Or(labelText(s.Selector), "the whole namespace")
		c.errorf(code.TargetTwice, s, "spec", "%s is already for %s, so this one is not used; merge the two", list[j].Key, what)
	}
}
