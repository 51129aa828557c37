package view

import (
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/bucket"
	"github.com/moonsail/moonsail/internal/model"
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

// MeetsRoutes tells whether a patch is for a route configuration. Names and ports of gateways
// are not looked at for sidecars.
func (p *Patch) MeetsRoutes(gateway bool, name string) bool {
	m := p.Routes
	if m == nil {
		return true
	}
	name = bucket.RouteConfig(name)
	if m.Name != "" && m.Name != name || m.Port != 0 && m.Port != portOf(name) {
		return false
	}
	return !gateway || m.PortName == "" && m.Gateway == ""
}

// portOf is the port of a route configuration: "80", "host:80", "inbound|80||"; 0: none.
func portOf(name string) uint32 {
	if rest, ok := strings.CutPrefix(name, "inbound|"); ok {
		name, _, _ = strings.Cut(rest, "|")
	}
	n, _ := strconv.ParseUint(name[strings.LastIndexByte(name, ':')+1:], 10, 32)
	return uint32(n)
}
