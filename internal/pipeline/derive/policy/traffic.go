package policy

import (
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// ForPort is a rule's policy for one port.
func ForPort(rule *model.DestinationRule, port uint32) model.TrafficPolicy {
	if rule == nil {
		return model.TrafficPolicy{}
	}
	if p, ok := rule.Ports[port]; ok {
		return overridePort(model.TrafficPolicy{Tunnel: rule.Policy.Tunnel}, p)
	}
	return rule.Policy
}

// ForSubset is a rule's policy for one port of a subset; empty: of the service.
func ForSubset(rule *model.DestinationRule, subset string, port uint32) model.TrafficPolicy {
	out := ForPort(rule, port)
	if rule == nil {
		return out
	}
	for i := range rule.Subsets {
		sub := &rule.Subsets[i]
		if subset == "" || sub.Name != subset {
			continue
		}
		if p, ok := sub.Ports[port]; ok {
			return overridePort(out.Merge(model.TrafficPolicy{Tunnel: sub.Policy.Tunnel}), p)
		}
		return out.Merge(sub.Policy)
	}
	return out
}

// overridePort applies port-level settings to a policy. They replace all parts that they can have: what a port leaves out
// has the default, as Istio documents. Of the policy beside them, as in Istio, only its tunnel counts for the port.
func overridePort(p, port model.TrafficPolicy) model.TrafficPolicy {
	p.LoadBalancer, p.ConnectionPool = port.LoadBalancer, port.ConnectionPool
	p.OutlierDetection, p.TLS = port.OutlierDetection, port.TLS
	return p
}

// WithBaseline completes a policy with the mesh's.
func WithBaseline(mesh *model.Mesh, policy model.TrafficPolicy, p model.Protocol) model.TrafficPolicy {
	out := mesh.Baseline.Merge(policy)
	if policy.ConnectionPool == nil {
		out.ConnectionPool = PoolFor(out.ConnectionPool, p)
	}
	return out
}

// PoolFor is the mesh's pool for a port. Settings of the HTTP version apply only to ports of HTTP: servers expect what a
// port declares.
func PoolFor(pool *model.ConnectionPool, p model.Protocol) *model.ConnectionPool {
	if pool == nil || p.IsHTTP() || pool.Upgrade != model.H2UpgradeAlways && !pool.UseClientProtocol {
		return pool
	}
	out := *pool
	out.Upgrade, out.UseClientProtocol = model.H2UpgradeDefault, false
	return &out
}

// passthroughIdle is Istio's. NATs and load balancers on the way to unknown hosts forget connections that are idle for
// longer, which would make the next request fail.
var passthroughIdle = 5 * time.Minute

// PassthroughPool is the mesh's pool for connections to addresses without a service.
func PassthroughPool(mesh *model.Mesh) *model.ConnectionPool {
	out := &model.ConnectionPool{}
	if pool := PoolFor(mesh.Baseline.ConnectionPool, ""); pool != nil {
		*out = *pool
	}
	if out.HTTPIdleTimeout == nil && out.TCPIdleTimeout == nil {
		out.HTTPIdleTimeout = &passthroughIdle
	}
	return out
}

// HashOf is the hash policy of a rule for a port of a subset; nil: it does not hash.
func HashOf(rule *model.DestinationRule, subset string, port uint32) *model.HashPolicy {
	if lb := ForSubset(rule, subset, port).LoadBalancer; lb != nil {
		return lb.Hash
	}
	return nil
}

// WithBackendTLS adds the BackendTLSPolicy that counts for a port to its policy, and returns it; nil: none counts. The TLS
// of a rule for the Service's own host precedes it, because a rule for a wildcard knows less of the Service. Applications
// that speak TLS to a port themselves, by its protocol, also do so through sidecars.
func WithBackendTLS(r *index.Reader, traffic model.TrafficPolicy, rule *model.DestinationRule, svc *model.Service, port *model.ServicePort) (model.TrafficPolicy, *model.BackendTLSPolicy) {
	list := r.BackendTLSPolicies(svc)
	switch {
	case len(list) == 0:
		return traffic, nil
	case traffic.TLS != nil && rule != nil && rule.Host == svc.Hostname:
		return traffic, nil
	case !r.Key.IsRouter() && port.Protocol.IsTLS():
		return traffic, nil
	}
	p := model.BackendTLSFor(list, svc, port.Name)
	if p != nil {
		traffic.TLS = p.ClientTLS(func(k model.Key) bool {
			mark := r.Mark()
			secret := r.Secret(k)
			if secret == nil || secret.CAProblem != "" {
				r.Unread(mark)
				return false
			}
			return true
		})
		r.Use(p)
		if name := clientCertificate(r); name != "" {
			traffic.TLS.Mode, traffic.TLS.CertificateName = model.TLSMutual, name
		}
	}
	return traffic, p
}

// clientCertificate returns the credential that the Gateway of the Gateway API has for backends; empty: none, or it may not
// refer to it.
func clientCertificate(r *index.Reader) string {
	if !r.Key.IsRouter() {
		return ""
	}
	for _, g := range r.Gateways() {
		if g.ClientCertificate == "" || g.Namespace != r.Key.Namespace {
			continue
		}
		if k, needs := g.NeedsGrant(g.ClientCertificate); needs && !r.Granted(g.GrantFrom(), k) {
			continue
		}
		r.Use(g)
		return g.ClientCertificate
	}
	return ""
}

// servedTLS leaves Secrets out of a rule that selects no workloads, because they are served only to gateways. Decoding warns of
// it.
func servedTLS(r *index.Reader, t *model.ClientTLS, rule *model.DestinationRule) *model.ClientTLS {
	if r.Key.IsRouter() || t.CredentialName == "" || model.IsConfigMap(t.CredentialName) || model.IsNoCredential(t.CredentialName) || rule != nil && len(rule.WorkloadSelector) > 0 {
		return t
	}
	out := *t
	out.Mode, out.CredentialName = model.TLSSimple, ""
	return &out
}

// Secure decides how a cluster's connections are secured: by the destination rule, else by mutual TLS if the mesh and the
// endpoints support it. A proxy without an identity has no certificate and cannot use the mesh's TLS.
func Secure(r *index.Reader, svc *model.Service, c *ir.Cluster, rule *model.DestinationRule) {
	t := c.Policy.TLS
	switch {
	case t != nil && t.Mode != model.TLSIstioMutual:
		c.Policy.TLS = servedTLS(r, t, rule)
		return
	case !r.Key.Identity:
		c.Policy.TLS = nil
		return
	case t == nil && !autoMTLS(r, svc, c):
		return
	}
	ids := r.Identities(svc)
	r.Used.AddAll(ids.Origins)
	if t == nil {
		c.Policy.TLS = &model.ClientTLS{Mode: model.TLSIstioMutual}
		c.AutoTLS = c.Discovery != ir.DiscoverOriginalDst
	}
	c.SubjectAltNames = subjectAltNames(r.Mesh(), svc, ids)
	c.MeshHTTP2 = ids.All && mayUpgrade(r.Mesh().MeshHTTP2, c)
}

// autoMTLS reports whether endpoints may get mutual TLS by default. If connections go to their original destination,
// endpoints cannot be distinguished: all must support it.
func autoMTLS(r *index.Reader, svc *model.Service, c *ir.Cluster) bool {
	if !r.Mesh().AutoMTLS || svc.External || svc.ExternalName != "" || c.Discovery == ir.DiscoverDynamicDNS {
		return false
	}
	ids := r.Identities(svc)
	r.Used.AddAll(ids.Origins)
	if c.Discovery == ir.DiscoverOriginalDst {
		return ids.All
	}
	return ids.Some
}

// mayUpgrade reports whether requests of a port may be sent by HTTP/2 to a sidecar, which speaks HTTP/1.1 to its
// application. Limits of connections and of pending requests mean nothing if all requests share a connection; then the
// upgrade must be requested. HTTP/2 has lower-case header names only; if the case must stay, a DestinationRule must
// request the upgrade.
func mayUpgrade(mesh model.H2Upgrade, c *ir.Cluster) bool {
	pool := c.Policy.ConnectionPool
	switch {
	case c.Protocol != model.ProtocolHTTP || mesh == model.H2UpgradeNever:
		return false
	case pool == nil:
		return !c.KeepCase
	case pool.Upgrade == model.H2UpgradeNever || pool.UseClientProtocol:
		return false
	}
	return pool.Upgrade == model.H2UpgradeAlways || !c.KeepCase && (!pool.LimitsConnections() || mesh == model.H2UpgradeAlways)
}

// subjectAltNames are the identities that callers of a service accept: the service accounts of its workloads and those that
// it lists, under each name of the mesh. If there are none, callers accept any identity.
func subjectAltNames(mesh *model.Mesh, svc *model.Service, ids *index.Identities) []string {
	out := slices.Clone(svc.SubjectAltNames)
	accounts := ids.Accounts
	for _, name := range svc.Accounts {
		if a := (index.Account{Namespace: svc.Namespace, Name: name}); !slices.Contains(accounts, a) {
			accounts = append(slices.Clip(accounts), a)
		}
	}
	for _, a := range accounts {
		for _, td := range mesh.TrustDomains() {
			out = append(out, model.Identity{TrustDomain: td, Namespace: a.Namespace, ServiceAccount: a.Name}.String())
		}
	}
	return out
}
