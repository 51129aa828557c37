package analyze

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// unreachablePorts reports ports to which no Service of the routers leads. Routers without a Service, and those on the network of
// their node, are reached in other ways.
func (c gatewayChecks) unreachablePorts(g *model.Gateway, routers []*model.Workload) {
	if slices.ContainsFunc(routers, func(w *model.Workload) bool { return w.HostNetwork }) {
		return
	}
	services := c.servicesOf(g, routers)
	if len(services) == 0 {
		return
	}
	have := make([]string, len(services))
	for i, s := range services {
		have[i] = fmt.Sprintf("%s has %s", s.Key, ports(s))
	}
	for i := range g.Servers {
		number := g.Servers[i].Port.Number
		if !slices.ContainsFunc(services, func(s *model.Service) bool { return c.leadsTo(s, number) }) {
			c.warnf(code.GatewayPortUnreachable, g, fmt.Sprintf("spec.servers[%d].port.number", i),
				"port %d cannot be reached through the Service of its routers (%s): add the port to the Service, or use one that it has", number, strings.Join(have, "; "))
		}
	}
}

// servicesOf lists the Services that select routers of a Gateway. If no router is known, these are the Services that select its
// labels.
func (c gatewayChecks) servicesOf(g *model.Gateway, routers []*model.Workload) []*model.Service {
	wanted := model.WithoutTopology(g.Selector)
	if len(wanted) == 0 {
		return nil
	}
	var out []*model.Service
	for _, s := range c.services {
		if !s.IsKubernetes() || len(s.Selector) == 0 {
			continue
		}
		selects := slices.ContainsFunc(routers, func(w *model.Workload) bool {
			return w.Namespace == s.Namespace && model.SelectorMatches(s.Selector, w.Labels)
		})
		if selects || len(routers) == 0 && model.SelectorMatches(wanted, s.Selector) {
			out = append(out, s)
		}
	}
	return out
}

// leadsTo reports whether a Service has the port of a Gateway, or leads to it. Target ports that are not known may be any.
func (c gatewayChecks) leadsTo(s *model.Service, number uint32) bool {
	return slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool {
		target := silentChecks(c).targetPort(s, &p)
		return p.Protocol != model.ProtocolUDP && (p.Number == number || target == number || target == 0)
	})
}
