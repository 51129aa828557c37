package envoyfilter

import (
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
)

// Cluster patches a cluster of a service; service is empty if it has none. Not present: a patch removes it.
func (s *Set) Cluster(service model.Host, m *clusterv3.Cluster) (out *clusterv3.Cluster, present bool, problems []Problem) {
	if !s.any(model.PatchCluster) || !slices.ContainsFunc(s.by[model.PatchCluster], func(p *patch) bool { return p.matchesCluster(service, m) }) {
		return m, true, nil
	}
	return run(s, m, func(w *work, c *clusterv3.Cluster) bool { return w.cluster(service, c) }, checkCluster)
}

func (w *work) cluster(service model.Host, c *clusterv3.Cluster) bool {
	for _, p := range w.of(model.PatchCluster) {
		switch {
		case !p.matchesCluster(service, c):
		case p.Operation == model.PatchRemove:
			return false
		case p.Operation.Merges():
			name := c.Name
			w.mergeCluster(p, c)
			c.Name = name // routes and endpoints refer to it
			w.did(p)
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

// matchesCluster reports whether a patch is for a cluster. With a name, nothing else is compared.
func (p *patch) matchesCluster(service model.Host, c *clusterv3.Cluster) bool {
	m := p.Cluster
	switch {
	case m == nil:
		return true
	case m.Name != "":
		return m.Name == c.Name
	}
	port, subset, host := clusterParts(c.Name)
	if host == "" {
		host = service
	}
	return (m.Service == "" || m.Service == host) && (m.Subset == "" || m.Subset == subset) && (m.Port == 0 || m.Port == port)
}

// clusterParts splits "direction|port|subset|host".
func clusterParts(name string) (port uint32, subset string, host model.Host) {
	parts := strings.Split(name, "|")
	if len(parts) != 4 {
		return 0, "", ""
	}
	n, _ := strconv.ParseUint(parts[1], 10, 32)
	return uint32(n), parts[2], model.Host(parts[3])
}
