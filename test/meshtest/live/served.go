package live

import (
	"fmt"
	"hash/fnv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// Prepare starts the upstreams of a world whose Envoy the caller starts, and which gets its resources from a control plane.
// The control plane must serve the played forms of Cluster, Endpoints and Listener. Calls can be made after Attach. silent: all
// calls will be silent, else none. The caller must call Stop.
func Prepare(w *simulate.World, silent bool) (*Mesh, error) {
	u, err := startUpstreams(reachable(w))
	if err != nil {
		return nil, err
	}
	a, err := newAuthority()
	if err != nil {
		u.stop()
		return nil, err
	}
	m := &Mesh{world: w, upstreams: u, authority: a, wait: patience}
	if silent {
		m.wait = silence
	}
	return m, nil
}

// Attach takes the list of listeners of the Envoy's admin interface, in JSON.
func (m *Mesh) Attach(listeners []byte) (err error) {
	m.addresses, err = addresses(listeners)
	return err
}

// Cluster returns the played form of a cluster. One with EDS keeps it.
func (m *Mesh) Cluster(c *clusterv3.Cluster) *clusterv3.Cluster {
	out := playedCluster(c, m.upstreams.ports)
	if c.GetType() == clusterv3.Cluster_EDS {
		out.ClusterDiscoveryType, out.LoadAssignment = c.ClusterDiscoveryType, nil
		out.EdsClusterConfig = proto.CloneOf(c.GetEdsClusterConfig())
	}
	return out
}

// Endpoints returns the played form of endpoints: the cluster's echo server.
func (m *Mesh) Endpoints(e *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	c := playedCluster(&clusterv3.Cluster{Name: e.GetClusterName()}, m.upstreams.ports)
	return c.GetLoadAssignment()
}

// Listener returns the played form of a listener. Each has an IP address of its own: at one address and port 0, Envoy passes the
// socket of a listener that drains on to a new one, whatever their names.
func (m *Mesh) Listener(l *listenerv3.Listener) (*listenerv3.Listener, error) {
	out, err := playedListener(l, m.authority, m.wait)
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", l.GetName(), err)
	}
	if out.GetAddress().GetSocketAddress().GetPortValue() == 0 {
		h := fnv.New32()
		_, _ = h.Write([]byte(l.GetName()))
		n := h.Sum32()
		out.GetAddress().GetSocketAddress().Address = fmt.Sprintf("127.%d.%d.%d", 100+n%90, n>>8&127, n>>16&127+1)
	}
	return out, nil
}
