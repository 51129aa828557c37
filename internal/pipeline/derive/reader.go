package derive

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// reader answers one unit's questions and writes down the facts behind the answers: what
// the unit depends on. Everything a unit derives goes through it.
type reader struct {
	index *Index
	scope *proxyGroup
	facts factList
	// used are the objects behind the answers, in the order of the questions. What is made of the
	// answers since a mark has those since the mark as its origins.
	used model.OriginList
}

// mark begins a value: madeSince gives the objects that were read from here on.
func (r *reader) mark() int { return r.used.Mark() }

func (r *reader) madeSince(mark int) ir.Made { return ir.Made{Origins: r.used.Since(mark)} }

// unread forgets the objects since a mark: they turned out not to matter.
func (r *reader) unread(mark int) { r.used.Drop(mark) }

// use notes an object that an answer gave.
func (r *reader) use(o model.Object) { r.used.Add(o.Metadata().Key) }

func newReader(x *Index, s *proxyGroup) *reader { return &reader{index: x, scope: s} }

// mesh is no fact: where it differs, everything is derived again.
func (r *reader) mesh() *model.Mesh { return r.index.mesh }

// service finds the service that a host means for the scope: one that it imports before
// others that are exported to it, a Kubernetes one before a ServiceEntry's, the client's
// namespace before others, then the oldest. nil where none is exported to the scope.
func (r *reader) service(h model.Host) *model.Service {
	r.facts.add(serviceFact(h))
	return r.usedService(r.serviceOf(h))
}

// usedService notes a service as an origin; nil passes.
func (r *reader) usedService(s *model.Service) *model.Service {
	if s != nil {
		r.used.Add(s.Key)
	}
	return s
}

// serviceOf finds the service of exactly host h, which the caller has noted.
func (r *reader) serviceOf(h model.Host) *model.Service {
	var best *model.Service
	for _, s := range r.index.services[h] {
		if s.Visibility.Sees(r.scope.Key.Namespace) && (best == nil || r.precedes(s, best)) {
			best = s
		}
	}
	return best
}

// precedes compares two services of one host; b is older.
func (r *reader) precedes(a, b *model.Service) bool {
	ns := r.scope.Key.Namespace
	if x, y := r.scope.sees(a), r.scope.sees(b); x != y {
		return x
	}
	if a.IsKubernetes() != b.IsKubernetes() {
		return a.IsKubernetes()
	}
	return a.Namespace == ns && b.Namespace != ns
}

// coveringService finds the service of h itself or, failing that, of the most specific
// wildcard that covers it.
func (r *reader) coveringService(h model.Host) *model.Service {
	r.facts.add(serviceFact(h))
	for _, c := range h.Covering() {
		if s := r.serviceOf(c); s != nil {
			return r.usedService(s)
		}
	}
	return nil
}

// virtualServices finds those that govern h: of the most specific host all that the scope imports, by rank, then
// the oldest first. Requests obey the first that has a rule for them; connections all, one after the other.
func (r *reader) virtualServices(h model.Host) []*model.VirtualService {
	r.facts.add(virtualServiceFact(h))
	for _, c := range h.Covering() {
		if list := r.virtualServicesOf(c); len(list) > 0 {
			return list
		}
	}
	return nil
}

// virtualServicesOf finds those of exactly host h, which the caller has noted.
func (r *reader) virtualServicesOf(h model.Host) []*model.VirtualService {
	var out []*model.VirtualService
	for _, v := range r.index.routes[h] {
		if r.scope.importsRoutes(v) {
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b *model.VirtualService) int { return r.scope.rank(a) - r.scope.rank(b) })
	return slices.Compact(out)
}

// delegate finds a virtual service without hosts that parent may include.
func (r *reader) delegate(k model.Key, parent *model.VirtualService) *model.VirtualService {
	r.facts.add(delegateFact(k))
	v := r.index.delegate[k]
	if v == nil || !v.Visibility.Sees(parent.Namespace) {
		return nil
	}
	r.used.Add(v.Key)
	return v
}

// rule finds the destination rule for a service: the client's namespace, then the
// service's, then the root namespace; in each the most specific host. For clients of the root
// namespace, gateways mostly, what is there for the whole mesh comes last, too.
func (r *reader) rule(h model.Host, serviceNS string) *model.DestinationRule {
	return r.ruleAmong(h, serviceNS, r.selectsClient)
}

// servedRule finds likewise what counts for the workload's own ports: rules with a selector are for clients alone.
func (r *reader) servedRule(h model.Host, serviceNS string) *model.DestinationRule {
	return r.ruleAmong(h, serviceNS, func(d *model.DestinationRule) bool { return len(d.WorkloadSelector) == 0 })
}

func (r *reader) ruleAmong(h model.Host, serviceNS string, counts func(*model.DestinationRule) bool) *model.DestinationRule {
	r.facts.add(destinationRuleFact(h))
	hosts := h.Covering()
	client, root := r.scope.Key.Namespace, r.index.mesh.RootNamespace
	places := [...]rulePlace{{client, client == root}, {serviceNS, false}, {root, false}}
	for i, p := range places {
		if slices.Contains(places[:i], p) {
			continue
		}
		for _, c := range hosts {
			if d := r.ruleIn(p, c, counts); d != nil {
				return d
			}
		}
	}
	return nil
}

// selectsClient tells whether a rule is for the scope's clients. A rule with a selector is
// only for workloads of its own namespace.
func (r *reader) selectsClient(d *model.DestinationRule) bool {
	if len(d.WorkloadSelector) == 0 {
		return true
	}
	return d.Namespace == r.scope.Key.Namespace && model.SelectorMatches(d.WorkloadSelector, r.scope.labels)
}

// endpoints are a service's; never nil for a service that the index has.
func (r *reader) endpoints(s *model.Service) *endpointSet {
	r.facts.add(endpointsFact(s.Hostname))
	return r.index.endpoints.set(s)
}

// endpointsOf are a service's endpoints, which count as origins.
func (r *reader) endpointsOf(s *model.Service) []*model.Endpoint {
	set := r.endpoints(s)
	r.used.AddAll(set.origins())
	return set.get()
}

// compareServices puts the older one first; the hosts of one ServiceEntry go by name.
func compareServices(a, b *model.Service) int {
	return cmp.Or(model.CompareAge(a, b), strings.Compare(string(a.Hostname), string(b.Hostname)))
}

// selecting lists the services of ns that select labels, oldest first.
func (r *reader) selecting(ns string, labels map[string]string) []*model.Service {
	for k, v := range labels {
		r.facts.add(selectingFact(ns, k+"="+v))
	}
	out := r.index.endpoints.selectors(ns, labels)
	slices.SortFunc(out, compareServices)
	return out
}
