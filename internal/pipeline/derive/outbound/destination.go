package outbound

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// backends resolves weighted destinations, and adds their hash policies to the route.
func (rt *Routing) backends(list []model.Backend, out *ir.Route) []ir.Backend {
	resolved := make([]ir.Backend, 0, len(list))
	for _, b := range list {
		if !rt.granted(b.Grant) {
			resolved = append(resolved, ir.Backend{Cluster: ir.UnknownService, Weight: max(b.Weight, 1)})
			continue
		}
		weight := b.Weight
		if weight == 0 {
			if len(list) > 1 {
				continue
			}
			weight = 1
		}
		cluster, host := rt.cluster(b.Destination)
		resolved = append(resolved, ir.Backend{Cluster: cluster, Host: host, Weight: weight, Headers: b.Headers})
		rt.addHash(b.Destination, out)
	}
	return resolved
}

// grantedNone reports whether there are backends, and ReferenceGrants allow none of them.
func (rt *Routing) grantedNone(list []model.Backend) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(b model.Backend) bool { return rt.granted(b.Grant) })
}

// granted reports whether a ReferenceGrant allows a reference; nil: none is needed. As in Istio, sidecars need none: the
// application could call the Service itself. A key without a namespace is never granted.
func (rt *Routing) granted(k *model.Key) bool {
	return k == nil || rt.Gateway == "" && k.Namespace != "" || rt.Reader.Granted(rt.Of, *k)
}

// GrantsFor is a virtual service as ReferenceGrants name it.
func GrantsFor(v *model.VirtualService) model.GrantFrom {
	return model.GrantFrom{Kind: string(v.Kind), Namespace: v.Namespace}
}

// cluster names a destination's cluster, and its host. A destination that the clients do not see also gets a name: Envoy
// answers 503 until the cluster appears.
func (rt *Routing) cluster(d model.Destination) (string, model.Host) {
	host := rt.clusterHost(d.Host)
	rt.Uses.Refs = append(rt.Uses.Refs, host)
	rt.Uses.Dynamic = rt.Uses.Dynamic || rt.isDynamic(host)
	return ir.OutboundCluster(rt.destinationPort(d), d.Subset, host), host
}

// isDynamic reports whether Envoy resolves the hosts of a service for each request.
func (rt *Routing) isDynamic(h model.Host) bool {
	svc := rt.Service(h)
	return svc != nil && svc.Resolution == model.ResolutionDynamicDNS
}

// clusterHost is the host whose cluster serves h: h itself, or the wildcard service that covers it.
func (rt *Routing) clusterHost(h model.Host) model.Host {
	if svc := rt.destination(h); svc != nil {
		return svc.Hostname
	}
	return h
}

// destination is the service of a destination's host, through aliases.
func (rt *Routing) destination(h model.Host) *model.Service {
	svc := rt.CoveringService(h)
	if target := rt.Aliased(svc); target != nil {
		return target
	}
	return svc
}

// destinationPort is the port of the destination, else the service's only port, else the port of the request.
func (rt *Routing) destinationPort(d model.Destination) uint32 {
	if d.Port != 0 {
		return d.Port
	}
	if d.PortName != "" {
		return rt.namedPort(d)
	}
	if svc := rt.destination(d.Host); svc != nil && len(svc.Ports) == 1 {
		return svc.Ports[0].Number
	}
	return rt.Port.Number
}

// namedPort is the port with the destination's name; 0: the service has none.
func (rt *Routing) namedPort(d model.Destination) uint32 {
	if svc := rt.destination(d.Host); svc != nil {
		for i := range svc.Ports {
			if svc.Ports[i].Name == d.PortName {
				return svc.Ports[i].Number
			}
		}
	}
	return 0
}

// addHash adds the hash policy of a destination's load balancer.
func (rt *Routing) addHash(d model.Destination, out *ir.Route) {
	hash := rt.hashPolicy(d)
	if hash == nil || slices.ContainsFunc(out.Hash, func(h model.HashPolicy) bool { return sameHash(h, *hash) }) {
		return
	}
	out.Hash = append(out.Hash, *hash)
}

func sameHash(a, b model.HashPolicy) bool {
	if (a.Cookie == nil) != (b.Cookie == nil) {
		return false
	}
	if a.Cookie != nil && a.Cookie.Name != b.Cookie.Name {
		return false
	}
	return a.Header == b.Header && a.QueryParam == b.QueryParam && a.SourceIP == b.SourceIP
}

// hashPolicy is that of a destination's load balancer; nil: it does not hash.
func (rt *Routing) hashPolicy(d model.Destination) *model.HashPolicy {
	svc := rt.destination(d.Host)
	if svc == nil {
		return nil
	}
	rule := rt.RuleFor(svc.Hostname, svc.Namespace, index.SetsHash)
	if rule == nil {
		return nil
	}
	return policy.HashOf(rule, d.Subset, rt.destinationPort(d))
}
