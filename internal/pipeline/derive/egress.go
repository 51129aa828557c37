package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// egress is one egress listener of a scope.
type egress struct {
	model.EgressListener
	// routes are set for listeners with a port.
	routes ir.RouteConfigKey
}

// captureNone tells whether applications connect to the listener themselves.
func (e *egress) captureNone(mode model.Interception) bool {
	return e.Capture == model.CaptureNone || e.Capture == model.CaptureDefault && mode == model.InterceptNone
}

// protocol is what a service's port is taken for: what the listener says, if it does.
func (e *egress) protocol(port *model.ServicePort) model.Protocol {
	if e.Port != nil && e.Port.Protocol != model.ProtocolAuto && e.Port.Protocol != "" {
		return e.Port.Protocol
	}
	return port.Protocol
}

// imports tells whether the listener's hosts select host h of namespace ns: some entry
// has to, and none may exclude it.
func (e *egress) imports(ns string, h model.Host) bool { return e.selects(ns, h, model.Host.Matches) }

// importsAny tells whether a virtual service with these hosts is imported: one of its
// hosts overlaps with the listener's selection, and is not excluded.
func (e *egress) importsAny(ns string, hosts []model.Host) bool {
	return slices.ContainsFunc(hosts, func(h model.Host) bool { return e.selects(ns, h, model.Host.Overlaps) })
}

// selects tells whether some entry's host meets h, and none excludes all of it.
func (e *egress) selects(ns string, h model.Host, meets func(entry, h model.Host) bool) bool {
	found := false
	for _, sel := range e.Hosts {
		switch {
		case sel.Namespace != "*" && sel.Namespace != ns:
		case !sel.Exclude:
			found = found || meets(sel.Host, h)
		case sel.Host.Matches(h):
			return false
		}
	}
	return found
}

// everything is the egress listener of a namespace without a Sidecar.
var everything = egress{EgressListener: model.EgressListener{Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}}}}

// egressOf lists the egress listeners of a Sidecar for workloads of a namespace.
func egressOf(s *model.Sidecar, namespace string) []egress {
	if s == nil || len(s.Egress) == 0 {
		return []egress{everything}
	}
	out := make([]egress, 0, len(s.Egress))
	first := map[uint32]string{} // the bind address of a port's first listener
	for _, l := range s.Egress {
		e := egress{EgressListener: l}
		e.Hosts = hostsFor(l.Hosts, namespace)
		if l.Port != nil {
			if _, ok := first[l.Port.Number]; !ok {
				first[l.Port.Number] = l.Bind
			}
			e.routes = ir.PortRoutes(l.Port.Number)
			if first[l.Port.Number] != l.Bind {
				e.routes = ir.AddressRoutes(l.Bind, l.Port.Number)
			}
		}
		out = append(out, e)
	}
	return out
}

// hostsFor are entries as they are for workloads of a namespace. Those given are not changed.
func hostsFor(list []model.HostSelector, namespace string) []model.HostSelector {
	out := slices.Clone(list)
	for i := range out {
		if out[i].Namespace == model.HostsHere {
			out[i].Namespace = namespace
		}
	}
	return out
}

// sees tells whether a service is reachable through any egress listener.
func (s *proxyGroup) sees(svc *model.Service) bool {
	if !svc.Visibility.Sees(s.Key.Namespace) {
		return false
	}
	for i := range s.egress {
		if s.egress[i].imports(svc.Namespace, svc.Hostname) {
			return true
		}
	}
	return false
}

// importsRoutes tells whether a virtual service counts in the scope.
func (s *proxyGroup) importsRoutes(v *model.VirtualService) bool {
	if !v.Visibility.Sees(s.Key.Namespace) {
		return false
	}
	for i := range s.egress {
		if s.egress[i].importsAny(v.Namespace, v.Hosts) {
			return true
		}
	}
	return false
}
