package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// permissive is what workloads accept where no policy switches mutual TLS off: to callers
// other modes are the same.
var permissive = &model.PeerTLS{Mode: model.MTLSPermissive}

// accepts is what the sidecar of a workload accepts, as far as callers have to know it.
func (x *Index) accepts(ns string, labels map[string]string, policies *model.OriginList) *model.PeerTLS {
	if x.disabling == 0 {
		return permissive
	}
	r := newReader(x, nil)
	list := r.peerPolicies(ns, labels)
	if slices.ContainsFunc(list, (*model.PeerAuthentication).Disables) { // else it is as permissive
		for _, p := range list {
			policies.Add(p.Key)
		}
	}
	return model.EffectivePeerTLS(x.mesh.RootNamespace, list)
}

// peerTLS is what the sidecar of a workload accepts.
func (r *reader) peerTLS(ns string, labels map[string]string) *model.PeerTLS {
	list := r.peerPolicies(ns, labels)
	for _, p := range list {
		r.use(p)
	}
	return model.EffectivePeerTLS(r.mesh().RootNamespace, list)
}

// peerPolicies are those that count for a workload.
func (r *reader) peerPolicies(ns string, labels map[string]string) []*model.PeerAuthentication {
	all := policies[*model.PeerAuthentication](r, model.KindPeerAuthentication, ns, labels)
	return model.EffectivePeerAuthentications(r.mesh().RootNamespace, all)
}

// replacePeerPolicy takes a PeerAuthentication. Where some policy switches mutual TLS off,
// before the change or after, the endpoints of the policy's namespace may be others.
func (x *Index) replacePeerPolicy(old, now model.Object, touched *touched) {
	before := x.disabling
	x.countDisabling(old, -1)
	x.countDisabling(now, 1)
	x.replacePolicy(old, now, touched)
	if before+x.disabling == 0 {
		return
	}
	for _, o := range []model.Object{old, now} {
		if o != nil {
			x.touchEndpoints(o.Metadata().Namespace, touched)
		}
	}
}

func (x *Index) countDisabling(o model.Object, by int) {
	if p := as[*model.PeerAuthentication](o); p != nil && p.Disables() {
		x.disabling += by
	}
}

// touchEndpoints touches the services of a namespace, or for the root namespace all.
func (x *Index) touchEndpoints(ns string, touched *touched) {
	for _, list := range x.services {
		for _, s := range list {
			if s.Namespace == ns || ns == x.mesh.RootNamespace {
				x.endpoints.touch(s, touched)
				touched.members[keyOf(s)] = struct{}{}
			}
		}
	}
}

// identities are those of a service's workloads; never nil.
func (r *reader) identities(s *model.Service) *identities {
	r.facts.add(identitiesFact(s.Hostname))
	if i := r.index.endpoints.identities[keyOf(s)]; i != nil {
		return i
	}
	return nobody
}

// secure decides how a cluster's connections are secured: as the destination rule says,
// else by mutual TLS where the mesh has it and endpoints do. A proxy without an identity
// has no certificate to show: the mesh's TLS is not for it.
func (s *proxyGroup) secure(r *reader, svc *model.Service, c *ir.Cluster, rule *model.DestinationRule) {
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
	ids := r.identities(svc)
	r.used.AddAll(ids.origins)
	if t == nil {
		c.Policy.TLS = &model.ClientTLS{Mode: model.TLSIstioMutual}
		c.AutoTLS = c.Discovery != ir.DiscoverOriginalDst
	}
	c.SubjectAltNames = subjectAltNames(r.mesh(), svc, ids)
	c.MeshHTTP2 = ids.all && mayUpgrade(r.mesh().MeshHTTP2, c)
}

// autoMTLS tells whether endpoints may get mutual TLS that nobody has asked for. Where
// connections go to where the application wanted, endpoints cannot be told apart: all must
// have it.
func (s *proxyGroup) autoMTLS(r *reader, svc *model.Service, c *ir.Cluster) bool {
	if !r.mesh().AutoMTLS || svc.External || svc.ExternalName != "" || c.Discovery == ir.DiscoverDynamicDNS {
		return false
	}
	ids := r.identities(svc)
	r.used.AddAll(ids.origins)
	if c.Discovery == ir.DiscoverOriginalDst {
		return ids.all
	}
	return ids.some
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
func subjectAltNames(mesh *model.Mesh, svc *model.Service, ids *identities) []string {
	out := slices.Clone(svc.SubjectAltNames)
	for _, a := range ids.accounts {
		for _, td := range mesh.TrustDomains() {
			out = append(out, model.Identity{TrustDomain: td, Namespace: a.namespace, ServiceAccount: a.name}.String())
		}
	}
	return out
}
