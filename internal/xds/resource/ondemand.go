package resource

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/xds/wire"
)

// A cluster on demand is sent to a proxy only when the proxy asks for it by name. Such clusters come on a stream of
// their own, and their endpoints on the stream of everything else. Nothing orders the two. So each form of such a
// cluster asks for its endpoints by a name of its own, see EndpointsName: Envoy then requests them whenever it takes a
// new form of the cluster, whichever control plane it is connected to, and also after it connected again.

// onDemand ends the version of a cluster on demand. It is not a hexadecimal digit.
const onDemand = "o"

// Absent is the version of the cluster that replaces one which does not exist, see AbsentCluster.
const Absent = "absent"

// IsOnDemand reports whether a cluster is sent on demand, by its version.
func IsOnDemand[V string | []byte](version V) bool {
	return len(version) > 0 && version[len(version)-1] == onDemand[0]
}

// endpointsMark separates the name of a cluster from its version. Names of hosts and subsets do not contain it.
const endpointsMark = "#"

// EndpointsName is the name by which a form of a cluster asks for its endpoints.
func EndpointsName(cluster, version string) string {
	if !IsOnDemand(version) {
		return cluster
	}
	return cluster + endpointsMark + version
}

// ClusterOfEndpoints returns the cluster that asks for endpoints by a name.
func ClusterOfEndpoints[N string | []byte](name N) N {
	i := len(name) - len(endpointsMark) - 16 - len(onDemand)
	if i <= 0 || !IsOnDemand(name) || name[i] != endpointsMark[0] {
		return name
	}
	return name[:i]
}

// EncodeOnDemand is Encode for a cluster on demand. Its version is the hash of m, with which setEndpoints sets the name
// of its endpoints.
func EncodeOnDemand[M proto.Message](name string, m M, setEndpoints func(M, string)) (*Encoded, error) {
	value, err := deterministic.Marshal(m)
	if err != nil {
		return nil, err
	}
	version := hash(value) + onDemand
	setEndpoints(m, EndpointsName(name, version))
	if value, err = deterministic.Marshal(m); err != nil {
		return nil, err
	}
	return encodeVersioned(Cluster, name, version, value), nil
}

// Fields of Cluster and Cluster.EdsClusterConfig.
const (
	edsClusterConfig = 3
	serviceName      = 2
)

// Asked returns a cluster as a proxy gets it that asks for it by name: it requests its endpoints by EndpointsName, also if
// the table that has it sends all clusters. Its version is the one that EncodeOnDemand makes of the same content. Clusters
// that are on demand already, or request no endpoints by their name, stay as they are.
func (e *Encoded) Asked() *Encoded {
	if IsOnDemand(e.Version) || !e.requestsEndpoints() {
		return e
	}
	if last := e.renamed.Load(); last != nil {
		return last
	}
	version := e.Version + onDemand
	field := wire.AppendField(nil, edsClusterConfig, wire.AppendField(nil, serviceName, EndpointsName(e.Name, version)))
	out := encodeVersioned(Cluster, e.Name, version, e.Value(), field) // messages are merged: the last name counts
	e.renamed.Store(out)
	return out
}

// requestsEndpoints reports whether a cluster requests endpoints by its own name.
func (e *Encoded) requestsEndpoints() (yes bool) {
	_ = wire.Fields(e.Value(), func(field protowire.Number, config []byte) error { // the content was encoded here
		if field != edsClusterConfig {
			return nil
		}
		return wire.Fields(config, func(field protowire.Number, v []byte) error {
			if field == serviceName {
				yes = string(v) == e.Name
			}
			return nil
		})
	})
	return yes
}

// clusterName is the field cluster_name of ClusterLoadAssignment, and the field name of Cluster.
const clusterName = 1

// Renamed returns endpoints under another name. Streams share the last result: proxies of a group ask by the same name.
func (e *Encoded) Renamed(name string) *Encoded {
	if e.Name == name {
		return e
	}
	if last := e.renamed.Load(); last != nil && last.Name == name {
		return last
	}
	field := wire.AppendField(nil, clusterName, name) // the last value of a field counts
	out := encodeVersioned(Endpoints, name, e.Version, e.Value(), field)
	e.renamed.Store(out)
	return out
}

// eager is the field on_demand of ScopedRouteConfiguration, set to false.
var eager = []byte{4 << 3, 0}

// Eager returns a scope whose routes Envoy loads when it takes the scope, and not on demand. It has the same version.
func (e *Encoded) Eager() *Encoded {
	return encodeVersioned(Scope, e.Name, e.Version, e.Value(), eager) // the last value of a field counts
}

// AbsentCluster returns a cluster without endpoints, whose requests fail at once. It answers a request for a cluster that
// does not exist: Envoy asks for a name only once, and without an answer later requests wait for one. STATIC is the
// default type.
func AbsentCluster(name string) *Encoded {
	return encodeVersioned(Cluster, name, Absent, wire.AppendField(nil, clusterName, name))
}
