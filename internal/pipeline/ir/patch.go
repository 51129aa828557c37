package ir

import (
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// Patches are what EnvoyFilters change of one scope's resources, in the order in which that
// is done.
type Patches struct {
	Gateway bool // the scope is one of gateways
	List    []Patch
}

// Patch is one change, with the EnvoyFilter that it is from.
type Patch struct {
	*model.EnvoyPatch
	Origin model.Key
}

// MeetsRoutes tells whether a patch is for a route configuration. Names of ports and gateways
// are not looked at for sidecars.
func (p *Patch) MeetsRoutes(gateway bool, name string) bool {
	m := p.Routes
	if m == nil {
		return true
	}
	name = routeshard.RouteConfig(name)
	if m.Name != "" && m.Name != name || m.Port != 0 && m.Port != portOf(name) {
		return false
	}
	portName, of := gatewayOf(name)
	return !gateway || (m.PortName == "" || m.PortName == portName) && (m.Gateway == "" || m.Gateway == of)
}

// gatewayOf reads "https.PORT.PORTNAME.GATEWAY.NAMESPACE"; those of plain text are of several.
func gatewayOf(name string) (portName, gateway string) {
	parts := strings.Split(name, ".")
	if len(parts) < 5 || parts[0] != "https" {
		return "", ""
	}
	return parts[2], parts[4] + "/" + parts[3]
}

// portOf is the port of a route configuration: "80", "host:80", "inbound|80||", and of gateways
// "http.8080", "https.443.NAME..."; 0: none.
func portOf(name string) uint32 {
	if kind, rest, _ := strings.Cut(name, "."); kind == "http" || kind == "https" {
		name, _, _ = strings.Cut(rest, ".")
	}
	if rest, ok := strings.CutPrefix(name, "inbound|"); ok {
		name, _, _ = strings.Cut(rest, "|")
	}
	n, _ := strconv.ParseUint(name[strings.LastIndexByte(name, ':')+1:], 10, 32)
	return uint32(n)
}
