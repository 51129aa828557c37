package envoyfilter

import (
	"cmp"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Cluster patches a cluster. v is the IR of m. Not present: a patch removes it.
func (s *Set) Cluster(v *ir.Cluster, m *clusterv3.Cluster) (out *clusterv3.Cluster, present bool, problems []Problem) {
	if !s.any(model.PatchCluster) || !slices.ContainsFunc(s.by[model.PatchCluster], func(p *patch) bool { return p.matchesCluster(v) }) {
		return m, true, nil
	}
	return run(s, m, func(w *work, c *clusterv3.Cluster) bool { return w.cluster(v, c) }, checkCluster)
}

func (w *work) cluster(v *ir.Cluster, c *clusterv3.Cluster) bool {
	for _, p := range w.of(model.PatchCluster) {
		switch {
		case !p.matchesCluster(v):
		case p.Operation == model.PatchRemove:
			w.did(p)
			return false
		case p.Operation.Merges():
			name := c.Name
			w.mergeCluster(p, c)
			c.Name = name // routes and endpoints refer to it
			w.did(p)
			if err := moveDNS(c); err != nil {
				w.failed(p, "the fields of DNS cannot be applied: %v", err)
			}
		}
	}
	return true
}

// mergeCluster merges a cluster. If the patch has a transport socket, only that is merged, as in Istio: into the
// transport socket with its name, which may be one of transport_socket_matches.
func (w *work) mergeCluster(p *patch, c *clusterv3.Cluster) {
	value := p.value.(*clusterv3.Cluster)
	if value.TransportSocket == nil {
		mergeMessages(c, value, p.Operation == model.PatchMergeReplace)
		return
	}
	sockets := []*corev3.TransportSocket{c.TransportSocket}
	for _, m := range c.TransportSocketMatches {
		sockets = append(sockets, m.GetTransportSocket())
	}
	i := slices.IndexFunc(sockets, func(t *corev3.TransportSocket) bool { return sameSocket(t, value.TransportSocket) })
	switch {
	case i >= 0:
		w.mergeSocket(p, sockets[i], value.TransportSocket)
	case len(c.TransportSocketMatches) == 0:
		c.TransportSocket = proto.Clone(value.TransportSocket).(*corev3.TransportSocket) // later patches may change it
	}
}

// matchesCluster reports whether a patch is for a cluster. With a name, nothing else is compared. Names of inbound clusters
// have no host: these match by the hosts of their services, as in Istio.
func (p *patch) matchesCluster(v *ir.Cluster) bool {
	m := p.Cluster
	switch {
	case m == nil:
		return true
	case m.Name != "":
		return m.Name == v.Name
	}
	host := cmp.Or(v.Of.Host, v.Service.Host)
	return (m.Service == "" || m.Service == host || slices.Contains(v.OtherHosts, m.Service)) && (m.Subset == "" || m.Subset == v.Of.Subset) && (m.Port == 0 || m.Port == v.Of.Port)
}
