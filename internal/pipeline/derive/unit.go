package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// unitKind orders the work within a scope: hosts tell which endpoints and listeners there are.
type unitKind uint8

const (
	unitTelemetry unitKind = iota // what the scope's listeners tell of calls
	unitWasm                      // what plugins its listeners have
	unitFixed                     // what every scope of its kind has
	unitGateways                  // what a router's Gateways come to
	unitHost
	unitPatches     // what EnvoyFilters change, before all others
	unitGatewayHost // a virtual host of a router
	unitRouteConfig // a route configuration of a router
	unitDomains     // a host's virtual hosts again: others have changed its share of the domains
	unitEndpoints
	unitSecret
	unitListener
	unitInbound

	unitKinds = iota
)

// unit is the smallest thing that is derived again.
type unit struct {
	kind unitKind
	port uint32 // of the listener
	name string // of the host or secret, or the listener's address
}

func hostUnit(h model.Host) unit      { return unit{kind: unitHost, name: string(h)} }
func domainsUnit(h model.Host) unit   { return unit{kind: unitDomains, name: string(h)} }
func secretUnit(name string) unit     { return unit{kind: unitSecret, name: name} }
func endpointsUnit(h model.Host) unit { return unit{kind: unitEndpoints, name: string(h)} }
func listenerUnit(k ir.ListenerKey) unit {
	return unit{kind: unitListener, name: k.Address, port: k.Port}
}

func (u unit) host() model.Host         { return model.Host(u.name) }
func (u unit) listener() ir.ListenerKey { return ir.ListenerKey{Address: u.name, Port: u.port} }
