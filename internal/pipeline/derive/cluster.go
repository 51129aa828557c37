package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// deriveClusters makes a cluster for each port of a service, and for each subset of it.
func (s *proxyGroup) deriveClusters(r *index.Reader, svc *model.Service, out *hostResult) {
	mark := r.Mark()
	r.Use(svc)
	if !s.Sees(svc) {
		r.Used.AddAll(s.refs[svc.Hostname].Common())
	}
	read := r.Used.Since(mark)
	rule := r.Rule(svc.Hostname, svc.Namespace)
	from := clusterOrigins{mark: mark, ruled: r.Mark(), service: read, rule: r.Used.Since(mark)}
	for i := range svc.Ports {
		port := &svc.Ports[i]
		if port.Protocol == model.ProtocolUDP {
			continue
		}
		s.addCluster(r, svc, port, nil, rule, portPolicy(rule, port.Number), from, out)
		if rule == nil {
			continue
		}
		for j := range rule.Subsets {
			sub := &rule.Subsets[j]
			s.addCluster(r, svc, port, sub, rule, subsetPolicy(rule, sub.Name, port.Number), from, out)
		}
	}
	r.Unread(mark)
}

// clusterOrigins is what all clusters of a service are made from.
type clusterOrigins struct {
	mark, ruled   int            // of the reader: from the service on, and after its rule
	service, rule *model.Origins // the service and why it is there; and with its rule
}

// subsetPolicy is a rule's policy for one port of a subset; empty: of the service.
func subsetPolicy(rule *model.DestinationRule, subset string, port uint32) model.TrafficPolicy {
	policy := portPolicy(rule, port)
	if rule == nil {
		return policy
	}
	for i := range rule.Subsets {
		sub := &rule.Subsets[i]
		if subset == "" || sub.Name != subset {
			continue
		}
		policy = policy.Merge(sub.Policy)
		if p, ok := sub.Ports[port]; ok {
			return overridePort(policy, p)
		}
		return policy
	}
	return policy
}

// portPolicy is a rule's policy for one port.
func portPolicy(rule *model.DestinationRule, port uint32) model.TrafficPolicy {
	if rule == nil {
		return model.TrafficPolicy{}
	}
	if p, ok := rule.Ports[port]; ok {
		return overridePort(rule.Policy, p)
	}
	return rule.Policy
}

// overridePort lays port-level settings over a policy. They do not inherit: what a port
// leaves out has the default, as Istio documents.
func overridePort(p, port model.TrafficPolicy) model.TrafficPolicy {
	p.LoadBalancer, p.ConnectionPool = port.LoadBalancer, port.ConnectionPool
	p.OutlierDetection, p.TLS = port.OutlierDetection, port.TLS
	return p
}

// based is a policy with the mesh's for what it does not say.
func based(r *index.Reader, policy model.TrafficPolicy, p model.Protocol) model.TrafficPolicy {
	out := r.Mesh().Baseline.Merge(policy)
	if policy.ConnectionPool == nil {
		out.ConnectionPool = spoken(out.ConnectionPool, p)
	}
	return out
}

// spoken is the mesh's pool for a port: which HTTP is spoken is for ports of HTTP. Servers take what is said to be HTTP
// for that.
func spoken(pool *model.ConnectionPool, p model.Protocol) *model.ConnectionPool {
	if pool == nil || p.IsHTTP() || pool.Upgrade != model.H2UpgradeAlways && !pool.UseClientProtocol {
		return pool
	}
	out := *pool
	out.Upgrade, out.UseClientProtocol = model.H2UpgradeDefault, false
	return &out
}

func (s *proxyGroup) addCluster(r *index.Reader, svc *model.Service, port *model.ServicePort, sub *model.Subset, rule *model.DestinationRule, policy model.TrafficPolicy, from clusterOrigins, out *hostResult) {
	policy, backendTLS := s.withBackendTLS(r, policy, rule, svc, port)
	policy = based(r, policy, port.Protocol)
	c := &ir.Cluster{
		Host: svc.Hostname, Port: port.Number, PortName: port.Name, Protocol: port.Protocol,
		Service:         ir.ServiceRef{Host: svc.Hostname, Name: svc.Name, Namespace: svc.Namespace},
		Discovery:       s.discovery(svc, policy),
		Policy:          policy,
		ConnectTimeout:  r.Mesh().ConnectTimeout,
		Keepalive:       r.Mesh().Keepalive,
		DNSRefresh:      r.Mesh().DNSRefresh,
		TLSDefaults:     r.Mesh().TLSDefaults,
		AgentFiles:      s.Key.Files,
		KeepCase:        s.Headers(r.Mesh()).KeepCase,
		External:        svc.External,
		Router:          s.router != nil,
		SubjectAltNames: svc.SubjectAltNames,
	}
	plan := edsPlan{from: from.service, port: port, lb: policy.LoadBalancer, outlier: policy.OutlierDetection != nil, near: r.Distribution(svc), mesh: r.Mesh().Locality}
	if sub != nil || plan.outlier || plan.lb != nil && plan.lb.Locality != nil {
		plan.from = from.rule
	}
	if sub != nil {
		c.Subset, plan.labels = sub.Name, sub.Labels
	}
	if rule != nil {
		c.Origin = rule.Namespace + "/" + rule.Name
	}
	if backendTLS != nil {
		c.TLSOrigin = backendTLS.Namespace + "/" + backendTLS.Name
	}
	c.Name = ir.OutboundCluster(port.Number, c.Subset, svc.Hostname)
	plan.cluster = c.Name
	c.LocalityWeighted = plan.distributes()
	s.secure(r, svc, c, rule)
	switch c.Discovery {
	case ir.DiscoverEDS:
		out.eds = append(out.eds, plan)
	case ir.DiscoverStatic, ir.DiscoverStrictDNS, ir.DiscoverLogicalDNS:
		c.Localities = s.localities(svc, staticEndpoints(r, svc), plan)
	}
	c.Made = r.MadeSince(from.mark)
	r.Unread(from.ruled)
	out.clusters = append(out.clusters, c)
}

// servedTLS leaves Secrets out of a rule that selects no workloads: nobody is served them.
// Decoding warns of it.
func servedTLS(t *model.ClientTLS, rule *model.DestinationRule) *model.ClientTLS {
	if t.CredentialName == "" || model.IsConfigMap(t.CredentialName) || model.IsNoCredential(t.CredentialName) || rule != nil && len(rule.WorkloadSelector) > 0 {
		return t
	}
	out := *t
	out.Mode, out.CredentialName = model.TLSSimple, ""
	return &out
}

// discovery says how Envoy finds the endpoints of a service.
func (s *proxyGroup) discovery(svc *model.Service, policy model.TrafficPolicy) ir.Discovery {
	if policy.LoadBalancer != nil && policy.LoadBalancer.Algorithm == model.LBPassthrough {
		return ir.DiscoverOriginalDst
	}
	switch {
	case svc.ExternalName != "":
		return ir.DiscoverStrictDNS
	case svc.Headless && s.Key.Type == model.ProxySidecar && s.Key.Interception != model.InterceptNone:
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

// staticEndpoints are those that go into a DNS cluster: the service's endpoints or, where it
// names none, its own host.
func staticEndpoints(r *index.Reader, svc *model.Service) []*model.Endpoint {
	if svc.ExternalName != "" {
		return []*model.Endpoint{{Address: string(svc.ExternalName)}}
	}
	list := r.EndpointsOf(svc)
	if len(list) == 0 && len(svc.Selector) == 0 && !svc.Hostname.IsWildcard() {
		return []*model.Endpoint{{Address: string(svc.Hostname)}}
	}
	return list
}
