package index

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Reader answers the questions of one unit for one proxy group. It records the facts behind the answers, which the unit
// depends on, and the objects, which become origins of the result. A unit gets all its input from a Reader.
type Reader struct {
	*Client
	index *Index
	facts FactList
	// Used are the objects behind the answers, in the order of the questions. A value that is made of the answers since a
	// mark has the objects since the mark as its origins.
	Used model.OriginList
}

// NewReader makes a reader for one unit.
func (x *Index) NewReader(c *Client) *Reader { return &Reader{Client: c, index: x} }

// Facts are what the unit has asked for.
func (r *Reader) Facts() FactList { return r.facts }

// ForgetFacts makes the unit depend on nothing.
func (r *Reader) ForgetFacts() { r.facts = nil }

// Mark begins a value: MadeSince returns the objects that are read from here on.
func (r *Reader) Mark() int { return r.Used.Mark() }

// MadeSince returns the objects that were read since a mark.
func (r *Reader) MadeSince(mark int) ir.Made { return ir.Made{Origins: r.Used.Since(mark)} }

// Unread forgets the objects since a mark: they turned out not to matter. The unit still depends on the facts.
func (r *Reader) Unread(mark int) { r.Used.Drop(mark) }

// Use adds an object of an answer to the origins.
func (r *Reader) Use(o model.Object) { r.Used.Add(o.Metadata().Key) }

// Mesh is not a fact: after a change of the mesh's configuration everything is derived again.
func (r *Reader) Mesh() *model.Mesh { return r.index.mesh }

// Service finds the service that a host means for the clients. Services that they import precede others that are exported
// to them. Then Kubernetes services precede those of ServiceEntries, the client's namespace precedes others, those that
// are exported to some namespaces only precede public ones, and older ones precede. Services of its namespace with the same
// host are parts of it. It returns nil if none is exported to them.
func (r *Reader) Service(h model.Host) *model.Service {
	r.facts.add(serviceFact(h))
	return r.usedService(r.serviceOf(h))
}

// usedService adds a service to the origins; nil passes.
func (r *Reader) usedService(s *model.Service) *model.Service {
	if s != nil {
		r.Used.Add(s.Key)
	}
	return s
}

// serviceOf finds the service of exactly host h. The caller has recorded the fact.
func (r *Reader) serviceOf(h model.Host) *model.Service {
	var best *model.Service
	for _, s := range r.index.services[h] {
		if s.Visibility.Sees(r.Key.Namespace) && (best == nil || r.precedes(s, best)) {
			best = s
		}
	}
	if best == nil {
		return nil
	}
	return r.index.endpoints.withParts(best)
}

// CoveringService finds the service of h itself or, without one, of the most specific wildcard that covers it.
func (r *Reader) CoveringService(h model.Host) *model.Service {
	r.facts.add(serviceFact(h))
	for _, c := range h.Covering() {
		if s := r.serviceOf(c); s != nil {
			return r.usedService(s)
		}
	}
	return nil
}

// maxAliases bounds how many names may stand between an alias and its service.
const maxAliases = 8

// Aliased is the service that an ExternalName Service is another name for, also through further aliases. It is nil if svc
// is not an alias, or is one for a host outside of the mesh.
func (r *Reader) Aliased(svc *model.Service) *model.Service {
	if svc == nil || svc.ExternalName == "" {
		return nil
	}
	for range maxAliases {
		svc = r.Service(svc.ExternalName)
		if svc == nil || svc.ExternalName == "" {
			return svc
		}
	}
	return nil
}

// Distribution is that of a service: its own, else its namespace's.
func (r *Reader) Distribution(svc *model.Service) model.Distribution {
	return r.index.localityUsage.of(svc)
}

// selecting lists the services of the clients' namespace that select them, oldest first. As for endpoints, labels of topology
// that the clients do not have themselves do not count.
func (r *Reader) selecting() []*model.Service {
	ns, own := r.Key.Namespace, r.OwnLabels()
	for k, v := range own {
		r.facts.add(selectingFact(ns, k+"="+v))
	}
	out := r.index.endpoints.selectors(ns, own)
	slices.SortFunc(out, compareServices)
	return out
}

// compareServices puts older services first. The hosts of one ServiceEntry are ordered by name.
func compareServices(a, b *model.Service) int {
	return cmp.Or(model.CompareAge(a, b), strings.Compare(string(a.Hostname), string(b.Hostname)))
}

// VirtualServices finds those that govern requests to h through an egress listener: of the most specific host all that the
// listener imports, by rank, then oldest first. A request obeys the first that has a rule for it. Routes of the Gateway API
// do not keep those of wider hosts from being used: they may be for other ports.
func (r *Reader) VirtualServices(e *Egress, h model.Host) []*model.VirtualService {
	r.facts.add(virtualServiceFact(h))
	var out []*model.VirtualService
	for _, c := range h.Covering() {
		out = append(out, r.virtualServicesOf(e, c, h)...)
		if slices.ContainsFunc(out, func(v *model.VirtualService) bool { return !v.Kind.IsKubernetesRoute() }) {
			break
		}
	}
	return out
}

// virtualServicesOf finds those of exactly host h that count for host to, which h covers, at an egress listener. Routes of
// the Gateway API are for the hosts of their parents alone. The caller has recorded the fact.
func (r *Reader) virtualServicesOf(e *Egress, h, to model.Host) []*model.VirtualService {
	var out []*model.VirtualService
	for _, v := range r.index.routes[h] {
		if r.ImportsRoutesAt(e, v) && v.ForClients(r.Key.Namespace, to) {
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b *model.VirtualService) int { return r.Rank(a) - r.Rank(b) })
	return slices.Compact(out)
}

// ConnectionRules finds the virtual services with rules for connections to h through an egress listener, by rank, then
// oldest first. As in Istio all count: those of h itself, of each wildcard that covers it, and if h is a wildcard of the
// hosts under it. A connection obeys one after the other.
func (r *Reader) ConnectionRules(e *Egress, h model.Host) []*model.VirtualService {
	r.facts.add(virtualServiceFact(h))
	var out []*model.VirtualService
	for _, c := range h.Covering() {
		out = append(out, r.virtualServicesOf(e, c, h)...)
	}
	if h.IsWildcard() {
		r.facts.add(routesUnderFact(h))
		for _, v := range r.index.routesUnder[h] {
			if r.ImportsRoutesAt(e, v) {
				out = append(out, v)
			}
		}
	}
	out = slices.DeleteFunc(out, func(v *model.VirtualService) bool { return len(v.TLS)+len(v.TCP) == 0 })
	slices.SortStableFunc(out, func(a, b *model.VirtualService) int { return cmp.Or(r.Rank(a)-r.Rank(b), model.CompareAge(a, b)) })
	return slices.Compact(out)
}

// Delegate finds a virtual service without hosts that parent may include.
func (r *Reader) Delegate(k model.Key, parent *model.VirtualService) *model.VirtualService {
	r.facts.add(delegateFact(k))
	v := r.index.delegate[k]
	if v == nil || !v.Visibility.Sees(parent.Namespace) {
		return nil
	}
	r.Used.Add(v.Key)
	return v
}

// BoundAt lists the virtual services that are bound to some gateways and have a host, in any order. It records no fact:
// a change of such a virtual service marks the units that it concerns (see Touched.Bound).
func (r *Reader) BoundAt(gateways []string, h model.Host) []*model.VirtualService {
	if len(gateways) == 1 {
		return r.index.bound[gateways[0]][h]
	}
	var out []*model.VirtualService
	for _, g := range gateways {
		out = append(out, r.index.bound[g][h]...)
	}
	return out
}

// BoundTo lists the virtual services that are bound to a gateway, once for each of their hosts, in any order. Like
// BoundAt it records no fact.
func (r *Reader) BoundTo(gateway string) []*model.VirtualService { return r.index.BoundTo(gateway) }

// Namespaces lists the namespaces that a selector selects, sorted.
func (r *Reader) Namespaces(s *model.LabelSelector) []string {
	r.facts.add(namespacesFact())
	return r.index.discovery.matching(s)
}

// Secret finds a Secret or ConfigMap; nil: there is none.
func (r *Reader) Secret(k model.Key) *model.Secret {
	r.facts.add(secretFact(k))
	out := r.index.secrets[k]
	if out != nil {
		r.Use(out)
	}
	return out
}

// JWTKeys are the keys of a rule; empty: they could not be fetched.
func (r *Reader) JWTKeys(rule *model.JWTRule) string {
	source := rule.KeySource()
	if source == "" {
		return rule.Keys
	}
	r.facts.add(keySetFact(source))
	if k := r.index.keySets[source]; k != nil {
		return k.Keys
	}
	return ""
}

// Endpoints is the set of a service's endpoints; never nil for a service that the index has.
func (r *Reader) Endpoints(s *model.Service) *EndpointSet {
	r.facts.add(endpointsFact(s.Hostname))
	return r.index.endpoints.sets[keyOf(s)]
}

// EndpointsOf lists a service's endpoints. The objects of those for a port become origins; nil: those of all.
func (r *Reader) EndpointsOf(s *model.Service, port *model.ServicePort) []*model.Endpoint {
	set := r.Endpoints(s)
	r.Used.AddAll(set.Origins(port))
	return set.Get()
}

// InBothFamilies lists a service's endpoints like EndpointsOf, of all ports. A Pod with an address of each family is listed with
// both: DNS answers with both, although the Pod is one endpoint.
func (r *Reader) InBothFamilies(s *model.Service) []*model.Endpoint {
	list := r.EndpointsOf(s, nil)
	if both, ok := r.index.endpoints.inBothFamilies(r.Endpoints(s).service); ok {
		return both
	}
	return list
}

// Identities are those of a service's workloads; never nil.
func (r *Reader) Identities(s *model.Service) *Identities {
	r.facts.add(identitiesFact(s.Hostname))
	if i := r.index.endpoints.identities[keyOf(s)]; i != nil {
		return i
	}
	return noIdentities
}

// Places are the addresses of everything that belongs to a service, ready or not: its endpoints, and selected workloads
// that no EndpointSlice lists. They are sorted and distinct. Callers must not change the list.
func (r *Reader) Places(s *model.Service) []string {
	set := r.Endpoints(s)
	set.placing.Do(func() { set.places = r.index.endpoints.places(set.service) })
	return set.places
}

// ServedPort is a port at which a service reaches a workload.
type ServedPort struct {
	Service *model.Service
	Port    *model.ServicePort
	Number  uint32         // that the workload listens on
	Origins *model.Origins // the service and what lists the workload's address for it; nil: the service selects its Pod
}

// Served lists the ports at which services reach the clients: those of services that select them, then those of services that
// have an endpoint at their address, in each the oldest first.
func (r *Reader) Served() []ServedPort {
	named, at := r.NamedPorts(), r.servicesAt()
	var out []ServedPort
	for _, svc := range r.selecting() {
		if slices.Contains(at, svc) {
			continue // the WorkloadEntry at the address decides
		}
		for i := range svc.Ports {
			p := &svc.Ports[i]
			if n, ok := portOn(*p, named, !svc.IsKubernetes()); ok {
				out = append(out, ServedPort{Service: svc, Port: p, Number: n})
			}
		}
	}
	for _, svc := range at {
		origins := r.originsAt(svc, r.Key.IP)
		for i := range svc.Ports {
			p := &svc.Ports[i]
			if n, ok := r.portAt(svc, r.Key.IP, p); ok {
				out = append(out, ServedPort{svc, p, n, origins})
			}
		}
	}
	return out
}

// servicesAt lists the services in the clients' namespace that have an endpoint at their address, oldest first. It leaves out
// those that reach the same ports by the clients' labels.
func (r *Reader) servicesAt() []*model.Service {
	ns, address := r.Key.Namespace, r.Key.IP
	if address == "" {
		return nil
	}
	r.facts.add(addressFact(ns, address))
	var out []*model.Service
	own, named := r.OwnLabels(), r.NamedPorts()
	for _, s := range r.index.endpoints.at.services[name{ns, address}] {
		if r.index.endpoints.adds(s, address, own, named) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, compareServices)
	return out
}

// originsAt are a service, and what lists an address for it: slices, or a WorkloadEntry.
func (r *Reader) originsAt(svc *model.Service, address string) *model.Origins {
	var out model.OriginList
	out.Add(svc.Key)
	if w := r.index.endpoints.entryAt(svc, address); w != nil {
		out.Add(w.Key)
		return out.Since(0) // addressFact covers it
	}
	r.facts.add(endpointsFact(svc.Hostname))
	if svc.IsKubernetes() {
		for k, slice := range r.index.endpoints.slices[nameOf(svc)] {
			if slices.Contains(addressesOfSlice(slice), address) {
				out.Add(k)
			}
		}
	}
	return out.Since(0)
}

// portAt is the number under which a workload at an address serves a port of svc.
func (r *Reader) portAt(svc *model.Service, address string, p *model.ServicePort) (uint32, bool) {
	if w := r.index.endpoints.entryAt(svc, address); w != nil {
		return entryPort(svc, w, p, r.OwnLabels(), r.NamedPorts()) // addressFact covers it
	}
	r.facts.add(endpointsFact(svc.Hostname))
	for i := range svc.Inline {
		if svc.Inline[i].Address == address {
			return EndpointPort(svc, &svc.Inline[i], p)
		}
	}
	return r.index.endpoints.slicePort(svc, address, p)
}
