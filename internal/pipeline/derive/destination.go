package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// backends resolves weighted destinations, and adds their hash policies to the route.
func (rt *routing) backends(list []model.Backend, out *ir.Route) []ir.Backend {
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

// grantedNone tells whether there are backends, and requests may go to none of them.
func (rt *routing) grantedNone(list []model.Backend) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(b model.Backend) bool { return rt.granted(b.Grant) })
}

// granted tells whether a ReferenceGrant allows what needs one.
func (rt *routing) granted(k *model.Key) bool {
	return k == nil || rt.Granted(rt.of, *k)
}

func grantsFor(v *model.VirtualService) model.GrantFrom {
	return model.GrantFrom{Kind: string(v.Kind), Namespace: v.Namespace}
}

// cluster names a destination's cluster. A destination that the scope does not see gets a
// name too: Envoy answers 503 until it appears.
func (rt *routing) cluster(d model.Destination) (string, model.Host) {
	host := rt.clusterHost(d.Host)
	rt.out.refs = append(rt.out.refs, host)
	rt.out.dynamic = rt.out.dynamic || rt.isDynamic(host)
	return ir.OutboundCluster(rt.destinationPort(d), d.Subset, host), host
}

// isDynamic tells whether Envoy resolves the hosts of a service by each request.
func (rt *routing) isDynamic(h model.Host) bool {
	svc := rt.Service(h)
	return svc != nil && svc.Resolution == model.ResolutionDynamicDNS
}

// clusterHost is the host whose cluster serves h: h itself, or the wildcard service that covers it.
func (rt *routing) clusterHost(h model.Host) model.Host {
	if svc := rt.destination(h); svc != nil {
		return svc.Hostname
	}
	return h
}

// destination is the service that a destination's host means, through aliases.
func (rt *routing) destination(h model.Host) *model.Service {
	svc := rt.CoveringService(h)
	if target := rt.Aliased(svc); target != nil {
		return target
	}
	return svc
}

// destinationPort is the port that was asked for; else the service's only one; else the
// one that was called.
func (rt *routing) destinationPort(d model.Destination) uint32 {
	if d.Port != 0 {
		return d.Port
	}
	if svc := rt.destination(d.Host); svc != nil && len(svc.Ports) == 1 {
		return svc.Ports[0].Number
	}
	return rt.port.Number
}

// addHash adds the hash policy of a destination's load balancer.
func (rt *routing) addHash(d model.Destination, out *ir.Route) {
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

// hashPolicy is that of a destination's load balancer, nil where it does not hash.
func (rt *routing) hashPolicy(d model.Destination) *model.HashPolicy {
	svc := rt.destination(d.Host)
	if svc == nil {
		return nil
	}
	rule := rt.RuleFor(svc.Hostname, svc.Namespace, index.SetsHash)
	if rule == nil {
		return nil
	}
	return hashOf(rule, rt.destinationPort(d), d.Subset)
}

// hashOf is the hash policy of a rule for a port of a subset.
func hashOf(rule *model.DestinationRule, port uint32, subset string) *model.HashPolicy {
	policy := portPolicy(rule, port)
	for _, sub := range rule.Subsets {
		if sub.Name == subset {
			policy = policy.Merge(sub.Policy)
			if p, ok := sub.Ports[port]; ok {
				policy = overridePort(policy, p)
			}
		}
	}
	if policy.LoadBalancer == nil {
		return nil
	}
	return policy.LoadBalancer.Hash
}
