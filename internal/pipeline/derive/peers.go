package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// secure decides how a cluster's connections are secured: as the destination rule says,
// else by mutual TLS where the mesh has it and endpoints do. A proxy without an identity
// has no certificate to show: the mesh's TLS is not for it.
func (s *proxyGroup) secure(r *index.Reader, svc *model.Service, c *ir.Cluster, rule *model.DestinationRule) {
	t := c.Policy.TLS
	switch {
	case t != nil && t.Mode != model.TLSIstioMutual:
		c.Policy.TLS = servedTLS(t, rule)
		return
	case !s.Key.Identity:
		c.Policy.TLS = nil
		return
	case t == nil && !s.autoMTLS(r, svc, c):
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

// autoMTLS tells whether endpoints may get mutual TLS that nobody has asked for. Where
// connections go to where the application wanted, endpoints cannot be told apart: all must
// have it.
func (s *proxyGroup) autoMTLS(r *index.Reader, svc *model.Service, c *ir.Cluster) bool {
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

// mayUpgrade tells whether requests of a port may be sent by HTTP/2 to a sidecar, which
// speaks HTTP/1.1 to its application. Limits of connections and of requests that wait for one mean
// nothing where all requests share a connection: there the upgrade must have been asked for. HTTP/2 has no names of
// headers but in lower case: where they are to stay as they are, a DestinationRule must have asked for it.
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

// subjectAltNames are whom callers of a service accept as its workloads: the service
// accounts of those that there are, under each name of the mesh. None is everybody who has
// an identity.
func subjectAltNames(mesh *model.Mesh, svc *model.Service, ids *index.Identities) []string {
	out := slices.Clone(svc.SubjectAltNames)
	for _, a := range ids.Accounts {
		for _, td := range mesh.TrustDomains() {
			out = append(out, model.Identity{TrustDomain: td, Namespace: a.Namespace, ServiceAccount: a.Name}.String())
		}
	}
	return out
}
