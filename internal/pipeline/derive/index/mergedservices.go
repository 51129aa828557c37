package index

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// Several ServiceEntries of a namespace, or a Service and ServiceEntries, may have one host. As in Istio they are parts of
// one service:
//
//	ports      of the first part, and of the other parts that it takes in (see model.Service.CannotTakeIn)
//	endpoints  of all parts, by the names of ports; names that Envoy resolves: by their numbers
//	listeners  of each part that the clients see, at its own addresses and ports
//	the rest   of the first part: a Service, else the oldest
//
// Clients that see different parts have different first parts. Parts that the same clients see form a class, and each
// class has its own merged service.

// hostIn is a host in a namespace.
type hostIn struct {
	host model.Host
	ns   string
}

func hostOf(s *model.Service) hostIn { return hostIn{s.Hostname, s.Namespace} }

// mergeServices merges the services of a host in a namespace again, after one of them changed.
func (x *Index) mergeServices(of hostIn, touched *Touched) {
	var parts []*model.Service
	for _, s := range x.services[of.host] {
		if s.Namespace == of.ns {
			parts = append(parts, s)
		}
	}
	was := x.endpoints.merged[of]
	delete(x.endpoints.merged, of)
	if len(parts) > 1 {
		slices.SortStableFunc(parts, func(a, b *model.Service) int { return rankPart(a) - rankPart(b) })
		x.endpoints.merged[of] = mergedServices(parts)
	}
	if len(was)+len(parts) < 2 {
		return
	}
	for _, s := range parts {
		x.endpoints.touch(s, touched)
		x.endpoints.touchMembers(s, touched)
	}
}

// withParts returns the merged service of which s is the first part; s itself if it has no other parts.
func (x *endpointIndex) withParts(s *model.Service) *model.Service {
	for _, m := range x.merged[hostOf(s)] {
		if m.Key == s.Key {
			return m
		}
	}
	return s
}

// rankPart puts Services before ServiceEntries.
func rankPart(s *model.Service) int {
	if s.IsKubernetes() {
		return 0
	}
	return 1
}

// mergedServices makes the merged service of each class of parts.
func mergedServices(parts []*model.Service) []*model.Service {
	var out []*model.Service
	for i, first := range parts {
		sameClients := func(p *model.Service) bool { return p.Visibility.Equal(first.Visibility) }
		if slices.ContainsFunc(parts[:i], sameClients) {
			continue
		}
		m := *first
		m.Parts, m.Inline = parts, nil
		m.Ports = slices.Clone(first.Ports)
		youngest := first
		for _, p := range parts {
			if first.CannotTakeIn(p) == "" {
				addPorts(&m, p.Ports)
			}
			if model.Older(youngest, p) {
				youngest = p
			}
		}
		m.SubjectAltNames, m.Accounts = youngest.SubjectAltNames, youngest.Accounts
		out = append(out, &m)
	}
	return out
}

// addPorts adds the ports whose numbers are new.
func addPorts(m *model.Service, ports []model.ServicePort) {
	for _, p := range ports {
		if m.Port(p.Number) == nil {
			m.Ports = append(m.Ports, p)
		}
	}
}

// mergedEndpoints lists the endpoints of all parts, with their ports by the names of the merged service's ports. Of
// endpoints with one address and port the first counts.
func (x *endpointIndex) mergedEndpoints(s *model.Service, policies *model.OriginList) []*model.Endpoint {
	var out []*model.Endpoint
	seen := map[mergedPort]bool{}
	for _, p := range s.Parts {
		list := x.compute(p, policies)
		if len(list) == 0 && p.ResolvesHost() {
			list = []*model.Endpoint{{Address: string(p.Hostname), Workload: p.Name, Namespace: p.Namespace}}
		}
		for _, e := range list {
			if !isCallable(s, e.Address) {
				continue
			}
			of := *e
			if of.Ports = newPorts(s, p, e, seen); len(of.Ports) > 0 {
				out = append(out, &of)
			}
		}
	}
	return out
}

// membersWith are the members of the parts that have endpoints for a port.
func (x *endpointIndex) membersWith(s *model.Service, port *model.ServicePort) *model.Origins {
	var out model.OriginList
	for _, p := range s.Parts {
		if slices.ContainsFunc(p.Ports, func(o model.ServicePort) bool { return partPort(s, &o) == port.Name }) {
			out.AddAll(x.members(p))
		}
	}
	return out.Since(0)
}

// partPort is the name under which a merged service has the endpoints for a port of a part; empty: it does not have them.
func partPort(s *model.Service, p *model.ServicePort) string {
	if !s.IsResolved() {
		return p.Name
	}
	if of := s.Port(p.Number); of != nil {
		return of.Name
	}
	return ""
}

// isCallable reports whether an endpoint of a service can have an address. If Envoy resolves the names of endpoints, sockets
// are impossible, else names are. An endpoint of another network has no address.
func isCallable(s *model.Service, a string) bool {
	if s.IsResolved() {
		return !model.IsSocket(a)
	}
	return a == "" || model.IsIP(a) || model.IsSocket(a)
}

// mergedPort is a port of an endpoint.
type mergedPort struct {
	address, name string
	number        uint32
}

// newPorts are the ports of an endpoint of a part that no earlier endpoint has.
func newPorts(s, part *model.Service, e *model.Endpoint, seen map[mergedPort]bool) map[string]uint32 {
	out := map[string]uint32{}
	for i := range part.Ports {
		p := &part.Ports[i]
		n, ok := EndpointPort(part, e, p)
		name := partPort(s, p)
		k := mergedPort{e.Address, name, n}
		if s.Resolution == model.ResolutionDNSRoundRobin { // Envoy takes one name for a port
			k = mergedPort{name: name}
		}
		if ok && !seen[k] {
			seen[k], out[name] = true, n
		}
	}
	return out
}
