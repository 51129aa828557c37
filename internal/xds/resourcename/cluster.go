// Package resourcename writes the structured names of Envoy's resources, and parses names that Envoy returns. The names
// are Istio's: users' EnvoyFilters and dashboards refer to them.
//
// Code that has an IR value reads the fields beside the name instead of parsing it.
package resourcename

import (
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// Direction is the first part of a cluster's name.
type Direction string

// The directions of a sidecar's clusters. Clusters of gateways are outbound.
const (
	Inbound  Direction = "inbound"
	Outbound Direction = "outbound"
)

// Cluster is what the name of a cluster consists of. Its endpoints, the EDS resource, have the same name. The zero
// value is that of clusters with a fixed name, such as BlackHoleCluster.
type Cluster struct {
	Direction Direction
	Port      uint32     // outbound: the service's; inbound: the one that clients connect to
	Subset    string     // empty: the whole service
	Host      model.Host // the service; empty: inbound
}

// String returns "outbound|80|v1|reviews.shop.svc.cluster.local".
func (c Cluster) String() string {
	return string(c.Direction) + "|" + strconv.FormatUint(uint64(c.Port), 10) + "|" + c.Subset + "|" + string(c.Host)
}

// ParseCluster parses what String returns; false: the name has another form.
func ParseCluster(name string) (c Cluster, ok bool) {
	parts := strings.Split(name, "|")
	if len(parts) != 4 {
		return Cluster{}, false
	}
	direction := Direction(parts[0])
	port, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil || direction != Inbound && direction != Outbound {
		return Cluster{}, false
	}
	return Cluster{Direction: direction, Port: uint32(port), Subset: parts[2], Host: model.Host(parts[3])}, true
}
