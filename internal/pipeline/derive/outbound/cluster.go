package outbound

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/endpoint"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// clusters makes a cluster for each port of a service, and for each subset of it. why is what the clients have them for;
// nil: for the service alone.
func clusters(r *index.Reader, svc *model.Service, why *model.Origins, out *Result) {
	mark := r.Mark()
	r.Use(svc)
	r.Used.AddAll(why)
	read := r.Used.Since(mark)
	rule := r.Rule(svc.Hostname, svc.Namespace)
	from := clusterOrigins{mark: mark, ruled: r.Mark(), service: read, rule: r.Used.Since(mark)}
	for i := range svc.Ports {
		port := &svc.Ports[i]
		if port.Protocol == model.ProtocolUDP {
			continue
		}
		addCluster(r, svc, port, nil, rule, policy.ForPort(rule, port.Number), from, out)
		if rule == nil {
			continue
		}
		for j := range rule.Subsets {
			sub := &rule.Subsets[j]
			addCluster(r, svc, port, sub, rule, policy.ForSubset(rule, sub.Name, port.Number), from, out)
		}
	}
	r.Unread(mark)
}

// clusterOrigins is what all clusters of a service are made from.
type clusterOrigins struct {
	mark, ruled   int            // of the reader: before the service, and after its rule
	service, rule *model.Origins // the service and the reason for it; and with its rule
}

func addCluster(r *index.Reader, svc *model.Service, port *model.ServicePort, sub *model.Subset, rule *model.DestinationRule, traffic model.TrafficPolicy, from clusterOrigins, out *Result) {
	traffic, backendTLS := policy.WithBackendTLS(r, traffic, rule, svc, port)
	mesh := r.Mesh()
	traffic = policy.WithBaseline(mesh, traffic, port.Protocol)
	c := &ir.Cluster{
		Of:              resourcename.Cluster{Direction: resourcename.Outbound, Port: port.Number, Host: svc.Hostname},
		Protocol:        port.Protocol,
		Service:         ir.ServiceRef{Host: svc.Hostname, Name: svc.Name, Namespace: svc.Namespace},
		Discovery:       discovery(r, svc, port, traffic),
		Policy:          traffic,
		ConnectTimeout:  mesh.ConnectTimeout,
		Keepalive:       mesh.Keepalive,
		DNSRefresh:      mesh.DNSRefresh,
		Families:        r.Key.Families,
		TLSDefaults:     mesh.TLSDefaults,
		AgentFiles:      r.Key.Files,
		KeepCase:        r.Headers(mesh).KeepCase,
		External:        svc.External,
		UpstreamPort:    upstreamPort(svc, port),
		Router:          r.Key.IsRouter(),
		SubjectAltNames: svc.SubjectAltNames,
	}
	plan := endpoint.Plan{
		From: from.service, Port: port, LoadBalancer: traffic.LoadBalancer, Outlier: traffic.OutlierDetection != nil,
		Distribution: r.Distribution(svc), Mesh: mesh.Locality,
		Single: c.Discovery == ir.DiscoverLogicalDNS,
	}
	if sub != nil || plan.Outlier || plan.LoadBalancer != nil && plan.LoadBalancer.Locality != nil {
		plan.From = from.rule
	}
	if p := partWith(svc, port); p != nil {
		r.Use(p)
		plan.From = replaceOrigin(plan.From, svc.Key, p.Key)
	}
	if sub != nil {
		c.Of.Subset, plan.Labels = sub.Name, sub.Labels
	}
	if rule != nil {
		c.Origin = rule.Key
	}
	if backendTLS != nil {
		c.TLSOrigin = backendTLS.Key
	}
	c.Name = c.Of.String()
	plan.Cluster = c.Name
	c.LocalityWeighted = plan.Distributes()
	policy.Secure(r, svc, c, rule)
	switch c.Discovery {
	case ir.DiscoverEDS:
		out.Endpoints = append(out.Endpoints, plan)
	case ir.DiscoverStatic, ir.DiscoverStrictDNS, ir.DiscoverLogicalDNS:
		if c.Localities = endpoint.Localities(r.Client, svc, staticEndpoints(r, svc, port), plan); len(c.Localities) == 0 && c.Discovery == ir.DiscoverLogicalDNS {
			c.Discovery = ir.DiscoverStatic // Envoy refuses a logical name without an endpoint
		}
	}
	c.Made = r.MadeSince(from.mark)
	r.Unread(from.ruled)
	out.Clusters = append(out.Clusters, c)
}

// upstreamPort is the target port of a service whose endpoints are original destinations; 0: it has none.
func upstreamPort(svc *model.Service, port *model.ServicePort) uint32 {
	if svc.IsKubernetes() || svc.Resolution != model.ResolutionNone {
		return 0
	}
	return port.TargetPort
}

// partWith is the part that a port of a merged service comes from; nil: the first part, or the service is not merged.
func partWith(svc *model.Service, port *model.ServicePort) *model.Service {
	var first, taken *model.Service
	for _, p := range svc.Parts {
		switch {
		case p.Key == svc.Key:
			first = p
		case taken == nil && p.Port(port.Number) != nil && svc.CannotTakeIn(p) == "":
			taken = p
		}
	}
	if first == nil || first.Port(port.Number) != nil {
		return nil
	}
	return taken
}

func replaceOrigin(o *model.Origins, old, now model.Key) *model.Origins {
	keys := slices.DeleteFunc(slices.Clone(o.Keys()), func(k model.Key) bool { return k == old })
	return model.OriginsOf(append(keys, now)...)
}

// discovery is how Envoy finds the endpoints of a service's port.
func discovery(r *index.Reader, svc *model.Service, port *model.ServicePort, traffic model.TrafficPolicy) ir.Discovery {
	if traffic.LoadBalancer != nil && traffic.LoadBalancer.Algorithm == model.LBPassthrough {
		return ir.DiscoverOriginalDst
	}
	switch {
	case svc.ExternalName != "":
		return ir.DiscoverStrictDNS
	case svc.Headless && port.Protocol.IsHTTP() && r.Mesh().BalanceHeadless:
		return ir.DiscoverEDS
	case svc.Headless && r.Key.Type == model.ProxySidecar && r.Key.Interception != model.InterceptNone:
		return ir.DiscoverOriginalDst
	}
	switch svc.Resolution {
	case model.ResolutionDNS:
		return ir.DiscoverStrictDNS
	case model.ResolutionDNSRoundRobin:
		return ir.DiscoverLogicalDNS
	case model.ResolutionNone:
		return ir.DiscoverOriginalDst
	case model.ResolutionDynamicDNS:
		return ir.DiscoverDynamicDNS
	}
	return ir.DiscoverEDS
}

// staticEndpoints are those of a DNS cluster: the service's endpoints or, without any, its own host.
func staticEndpoints(r *index.Reader, svc *model.Service, port *model.ServicePort) []*model.Endpoint {
	if svc.ExternalName != "" {
		return []*model.Endpoint{{Address: string(svc.ExternalName)}}
	}
	list := r.EndpointsOf(svc, port)
	if len(list) == 0 && len(svc.Selector) == 0 && !svc.Hostname.IsWildcard() {
		return []*model.Endpoint{{Address: string(svc.Hostname)}}
	}
	return list
}
