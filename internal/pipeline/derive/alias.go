package derive

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
)

// deriveAlias serves requests for an alias as its target's: on the target's ports, by its
// rules unless the alias has some of its own. Connections need nothing: who resolves the
// alias connects to the target's address.
func (s *proxyGroup) deriveAlias(r *index.Reader, alias, target *model.Service, routes []*model.VirtualService) *hostResult {
	if len(routes) == 0 {
		routes = r.VirtualServices(target.Hostname)
	}
	out := &hostResult{hostState: hostState{refs: []model.Host{target.Hostname}}}
	mark := r.Mark()
	if s.refs[alias.Hostname].Total() > 0 { // by a Sidecar's egress proxy; routes lead to the target
		out.service = alias
		s.deriveClusters(r, alias, out)
	}
	r.Unread(mark) // what stays are the alias and what it stands for
	for i := range s.Egress {
		e := &s.Egress[i]
		if !e.Imports(alias.Namespace, alias.Hostname) {
			continue
		}
		for j := range target.Ports {
			port := &target.Ports[j]
			if e.Port == nil || e.Port.Number == port.Number {
				s.deriveAliasPort(r, e, alias, target, port, routes, out)
			}
		}
	}
	return out
}

func (s *proxyGroup) deriveAliasPort(r *index.Reader, e *index.Egress, alias, target *model.Service, port *model.ServicePort, routes []*model.VirtualService, out *hostResult) {
	protocol := e.Protocol(port)
	if !protocol.IsHTTP() && protocol != model.ProtocolAuto || target.Headless && !protocol.IsHTTP() {
		return
	}
	at := place(r, e, target, port, protocol)
	if at.sniffed || len(at.keys) == 0 || taken(s.Client, e, at) {
		return // a route configuration of the target's own takes any host
	}
	mark := r.Mark()
	s.useEgress(r, e)
	from := r.Used.Since(0)
	for _, key := range at.keys {
		c := out.claim(key, alias, e.CaptureNone(s.Key.Interception))
		c.routes, c.from = at.routes, c.from.Union(from)
	}
	v := s.deriveVirtualHost(r, at, alias.Hostname, target, port, routes, out)
	v.Made = r.MadeSince(0)
	r.Unread(mark)
	v.Domains = s.hostDomains(alias.Hostname, alias)
	s.addVirtualHost(out, v)
}
