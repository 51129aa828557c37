package derive

import (
	"github.com/moonsail/moonsail/internal/model"
)

// maxAliases bounds how many names may stand between an alias and its service.
const maxAliases = 8

// aliased is the service that an ExternalName Service is another name for, through further
// aliases too; nil where svc is none, or stands for something that is not in the mesh.
func (r *reader) aliased(svc *model.Service) *model.Service {
	if svc == nil || svc.ExternalName == "" {
		return nil
	}
	for range maxAliases {
		svc = r.service(svc.ExternalName)
		if svc == nil || svc.ExternalName == "" {
			return svc
		}
	}
	return nil
}

// deriveAlias serves requests for an alias as its target's: on the target's ports, by its
// rules unless the alias has some of its own. Connections need nothing: who resolves the
// alias connects to the target's address.
func (s *proxyGroup) deriveAlias(r *reader, alias, target *model.Service, routes []*model.VirtualService) *hostResult {
	if len(routes) == 0 {
		routes = r.virtualServices(target.Hostname)
	}
	out := &hostResult{hostState: hostState{refs: []model.Host{target.Hostname}}}
	mark := r.mark()
	if s.refs[alias.Hostname].total() > 0 { // by a Sidecar's egress proxy; routes lead to the target
		out.service = alias
		s.deriveClusters(r, alias, out)
	}
	r.unread(mark) // what stays are the alias and what it stands for
	for i := range s.egress {
		e := &s.egress[i]
		if !e.imports(alias.Namespace, alias.Hostname) {
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

func (s *proxyGroup) deriveAliasPort(r *reader, e *egress, alias, target *model.Service, port *model.ServicePort, routes []*model.VirtualService, out *hostResult) {
	protocol := e.protocol(port)
	if !protocol.IsHTTP() && protocol != model.ProtocolAuto || target.Headless && !protocol.IsHTTP() {
		return
	}
	at := s.place(r, e, target, port, protocol)
	if at.sniffed || len(at.keys) == 0 || s.taken(e, at) {
		return // a route configuration of the target's own takes any host
	}
	mark := r.mark()
	s.useEgress(r, e)
	from := r.used.Since(0)
	for _, key := range at.keys {
		c := out.claim(key, alias, e.captureNone(s.Key.Interception))
		c.routes, c.from = at.routes, c.from.Union(from)
	}
	v := s.deriveVirtualHost(r, at, alias.Hostname, target, port, routes, out)
	v.Made = r.madeSince(0)
	r.unread(mark)
	v.Domains = s.hostDomains(alias.Hostname, alias)
	s.addVirtualHost(out, v)
}
