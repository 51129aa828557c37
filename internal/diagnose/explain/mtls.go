package explain

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// mesh is the mesh's configuration, as a snapshot has it.
func (x *Explainer) mesh(snap *store.Snapshot) *model.Mesh {
	base := x.base()
	for o := range snap.All(model.KindMeshConfig) {
		if c, ok := o.(*model.MeshConfig); ok && c.Namespace == base.RootNamespace {
			return c.Over(base)
		}
	}
	return base
}

// principal is the name in a proxy's certificate; empty: it has none.
func (x *Explainer) principal(snap *store.Snapshot, p *model.Proxy) string {
	if !p.Identity {
		return ""
	}
	id := model.Identity{TrustDomain: x.mesh(snap).TrustDomain, Namespace: p.Namespace, ServiceAccount: p.ServiceAccount}
	if id.ServiceAccount == "" {
		id.ServiceAccount = "default"
	}
	return id.String()
}

// arrives makes a call what it is on the way from a caller's sidecar to an endpoint: inside
// of TLS, where the caller's cluster has it for the endpoint.
func arrives(c *simulate.Call, u *simulate.Upstream, e *simulate.Endpoint, principal string) {
	if u.TLS == nil || e.Plain {
		return
	}
	if c.Protocol == simulate.TCP || c.Protocol == simulate.TLS {
		c.Protocol = simulate.TLS
	} else {
		c.Protocol = simulate.HTTPS
	}
	c.SNI, c.ALPN, c.Principal = u.TLS.SNI, u.TLS.ALPN, principal
}

// accepted adds what a workload accepts at the port of an address, and by which policies.
func (x *Explainer) accepted(snap *store.Snapshot, p *model.Proxy, address string, passage *Passage) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return // a socket's path
	}
	port, _ := strconv.ParseUint(text, 10, 16)
	root := x.mesh(snap).RootNamespace
	selecting := peerPolicies(snap, root, p)
	mode := model.EffectivePeerTLS(root, selecting).Of(uint32(port))
	passage.Accepts = string(mode)
	if !p.Identity {
		passage.Accepts += ", without a certificate"
	}
	for _, policy := range selecting {
		if policy.Mode != model.MTLSUnset || len(policy.Ports) > 0 {
			passage.Objects = append(passage.Objects, Source{
				Object: policy.Key, Origin: policy.Origin, Decides: fmt.Sprintf("mutual TLS at port %d: %s", port, mode),
			})
		}
	}
}

// peerPolicies are those that count for a workload, the oldest of each level: the mesh's, its
// namespace's, its own.
func peerPolicies(snap *store.Snapshot, root string, p *model.Proxy) []*model.PeerAuthentication {
	var all []*model.PeerAuthentication
	for o := range snap.All(model.KindPeerAuthentication) {
		policy, ok := o.(*model.PeerAuthentication)
		if !ok || policy.Namespace != root && policy.Namespace != p.Namespace ||
			policy.Namespace == root && len(policy.Selector) > 0 || !model.SelectorMatches(policy.Selector, p.Labels) {
			continue
		}
		all = append(all, policy)
	}
	slices.SortFunc(all, func(a, b *model.PeerAuthentication) int { return model.CompareAge(a, b) })
	level := func(p *model.PeerAuthentication) int {
		switch {
		case len(p.Selector) > 0:
			return 2
		case p.Namespace == root:
			return 0
		}
		return 1
	}
	levels := map[int]*model.PeerAuthentication{}
	for _, policy := range all {
		if levels[level(policy)] == nil {
			levels[level(policy)] = policy
		}
	}
	var out []*model.PeerAuthentication
	for l := range 3 {
		if levels[l] != nil {
			out = append(out, levels[l])
		}
	}
	return out
}
