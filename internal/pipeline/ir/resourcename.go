package ir

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Only this file and package resourcename write the names of Envoy's resources. Code of the pipeline does not parse a name:
// what it is made of is in fields beside it. Names that Envoy returns are parsed by package resourcename.

// OutboundCluster names the cluster of a service's port, or of a subset of it.
func OutboundCluster(port uint32, subset string, h model.Host) string {
	return resourcename.Cluster{Direction: resourcename.Outbound, Port: port, Subset: subset, Host: h}.String()
}

// InboundCluster names the cluster of a port of the workload itself.
func InboundCluster(port uint32) string {
	return resourcename.Cluster{Direction: resourcename.Inbound, Port: port}.String()
}

// InboundVirtualHost names the virtual host of a service's port in the inbound listener.
func InboundVirtualHost(port uint32) string { return fmt.Sprintf("inbound|http|%d", port) }

// Names of the listeners that receive redirected connections.
const (
	VirtualInbound  = "virtualInbound"
	VirtualOutbound = "virtualOutbound"
)

// ListenerKey is where a listener listens.
type ListenerKey struct {
	Address string // an IP address, or the path of a socket
	Port    uint32
}

// Name is the listener's name: "0.0.0.0_80".
func (k ListenerKey) Name() string { return fmt.Sprintf("%s_%d", k.Address, k.Port) }

// RouteConfigKey is a route configuration with what its name is made of.
type RouteConfigKey struct {
	// Name is that of the whole route configuration, also where the key is that of one of its shards.
	Name string
	// Port is the port of its requests. EnvoyFilters match it, unless Plain is set: then they match Plain.Ports. It is 0 for
	// listeners with an address of their own, which EnvoyFilters cannot match by port, as in Istio.
	Port uint32
	// Plain are a gateway's servers in plain text; nil: TLS, or a sidecar's.
	Plain *PlainServers
	// Server is the gateway's server that ends TLS for the requests; nil: plain text, or a sidecar's.
	Server *GatewayServer
}

// GatewayServer is a server with TLS, as EnvoyFilters match it.
type GatewayServer struct {
	PortName string
	Gateway  string // "namespace/name"
}

// PlainServers are the servers in plain text that share a route configuration.
type PlainServers struct {
	// Ports are those of the Gateways, sorted. EnvoyFilters match them, as in Istio. A Service may lead all of them to one port.
	Ports []uint32
}

// Add adds the port of a server.
func (s *PlainServers) Add(port uint32) {
	if i, found := slices.BinarySearch(s.Ports, port); !found {
		s.Ports = slices.Insert(s.Ports, i, port)
	}
}

// PortRoutes is what all HTTP services on a port of the mesh share.
func PortRoutes(port uint32) RouteConfigKey {
	return RouteConfigKey{Name: strconv.FormatUint(uint64(port), 10), Port: port}
}

// HostRoutes belongs to one port of one service, whose listener does not know the protocol.
func HostRoutes(h model.Host, port uint32) RouteConfigKey {
	return RouteConfigKey{Name: resourcename.HostPort(h, port), Port: port}
}

// AddressRoutes belongs to an egress listener with an address.
func AddressRoutes(address string, port uint32) RouteConfigKey {
	return RouteConfigKey{Name: fmt.Sprintf("%s_%d", address, port)}
}

// InboundRoutes is the part of a sidecar's own listener for one port of its workload.
func InboundRoutes(port uint32) RouteConfigKey {
	return RouteConfigKey{Name: InboundCluster(port), Port: port}
}

// GatewayRoutes is what the servers of a gateway in plain text share that listen on a port. bind is the address of the
// server; empty: all. The caller adds the ports of the servers.
func GatewayRoutes(port uint32, bind string) RouteConfigKey {
	return RouteConfigKey{Name: withBind(fmt.Sprintf("http.%d", port), bind), Port: port, Plain: &PlainServers{}}
}

// GatewayTLSRoutes belongs to one server with TLS. Dots in the name of a listener become "_", which no name has: otherwise two
// listeners could have one name for their routes.
func GatewayTLSRoutes(g *model.Gateway, server *model.GatewayServer) RouteConfigKey {
	port := server.Port
	return RouteConfigKey{
		Name:   withBind(fmt.Sprintf("https.%d.%s.%s.%s", port.Number, strings.ReplaceAll(port.Name, ".", "_"), g.RouteName(), g.Namespace), server.Bind),
		Port:   port.Number,
		Server: &GatewayServer{PortName: port.Name, Gateway: g.Namespace + "/" + g.RouteName()},
	}
}

func withBind(name, bind string) string {
	if bind == "" {
		return name
	}
	return name + "." + bind
}
