package index

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// factKind is a set of kinds of facts; each constant is one.
type factKind uint16

const (
	factService         factKind = 1 << iota // the services that cover a host
	factVirtualService                       // the mesh's virtual services that cover a host
	factDestinationRule                      // the destination rules that cover a host, and its BackendTLSPolicies
	factEndpoints                            // the endpoints of a host
	factDelegate                             // a virtual service by key
	factSelecting                            // services of a namespace that select by one label pair
	factAddress                              // services of a namespace by the address of an endpoint, and WorkloadEntries there
	factPolicy                               // objects of one kind that select workloads by one label pair, or all of a namespace
	factIdentities                           // the identities of a host's workloads
	factSecret                               // a Secret by key
	factNamespaces                           // which namespaces there are, with their labels
	factRoutesUnder                          // the mesh's virtual services with connections to hosts under a wildcard

	factsOfWildcards = factService | factVirtualService | factDestinationRule
)

// Fact names a question that units ask the index, of one kind or of several kinds with the same name.
type Fact struct {
	name  string // a host, an object's "namespace/name", or "namespace/label pair"; see also policyFact
	kinds factKind
}

func serviceFact(h model.Host) Fact         { return Fact{string(h), factService} }
func virtualServiceFact(h model.Host) Fact  { return Fact{string(h), factVirtualService} }
func routesUnderFact(h model.Host) Fact     { return Fact{string(h), factRoutesUnder} }
func destinationRuleFact(h model.Host) Fact { return Fact{string(h), factDestinationRule} }
func endpointsFact(h model.Host) Fact       { return Fact{string(h), factEndpoints} }
func identitiesFact(h model.Host) Fact      { return Fact{string(h), factIdentities} }
func secretFact(k model.Key) Fact           { return Fact{k.String(), factSecret} }
func delegateFact(k model.Key) Fact         { return Fact{k.Namespace + "/" + k.Name, factDelegate} }
func selectingFact(ns, pair string) Fact    { return Fact{ns + "/" + pair, factSelecting} }
func namespacesFact() Fact                  { return Fact{"", factNamespaces} }
func addressFact(ns, address string) Fact   { return Fact{ns + "/" + address, factAddress} }

// factSet collects the facts that a batch has changed.
type factSet map[Fact]struct{}

func (s factSet) add(f Fact) { s[f] = struct{}{} }

// FactList is what one unit has asked for: a few facts, each name once.
type FactList []Fact

func (l *FactList) add(f Fact) {
	for i := range *l {
		if (*l)[i].name == f.name {
			(*l)[i].kinds |= f.kinds
			return
		}
	}
	*l = append(*l, f)
}

func (l FactList) has(name string) bool {
	return slices.ContainsFunc(l, func(f Fact) bool { return f.name == name })
}

// Dependents records which units of a proxy group depend on which facts.
type Dependents[U comparable] struct {
	byName map[string][]dependent[U] // by the facts' name
	asked  map[U]FactList
}

// dependent is a unit that has asked for facts of one name.
type dependent[U comparable] struct {
	unit  U
	kinds factKind
}

// NewDependents makes an empty record.
func NewDependents[U comparable]() *Dependents[U] {
	return &Dependents[U]{byName: map[string][]dependent[U]{}, asked: map[U]FactList{}}
}

// Replace replaces the facts that a unit depends on.
func (d *Dependents[U]) Replace(u U, facts FactList) {
	old := d.asked[u]
	for _, f := range old {
		if !facts.has(f.name) {
			d.byName[f.name] = slices.DeleteFunc(d.byName[f.name], func(o dependent[U]) bool { return o.unit == u })
			dropEmpty(d.byName, f.name)
		}
	}
	for _, f := range facts {
		list := d.byName[f.name]
		if !old.has(f.name) {
			d.byName[f.name] = append(list, dependent[U]{u, f.kinds})
			continue
		}
		list[slices.IndexFunc(list, func(o dependent[U]) bool { return o.unit == u })].kinds = f.kinds
	}
	if len(facts) == 0 {
		delete(d.asked, u)
	} else {
		d.asked[u] = slices.Clip(facts)
	}
}

// Of calls mark for each unit that depends on a changed fact, or on one that the fact's wildcard covers. A unit that asks
// for a host records that one name, not each pattern that could cover it. A change of a wildcard is rare, and looks
// through all facts instead.
func (d *Dependents[U]) Of(changed Fact, mark func(U)) {
	markAll(d.byName[changed.name], changed.kinds, mark)
	h := model.Host(changed.name)
	if changed.kinds&factsOfWildcards == 0 || !h.IsWildcard() {
		return
	}
	for name, list := range d.byName {
		if h.Matches(model.Host(name)) {
			markAll(list, changed.kinds, mark)
		}
	}
}

func markAll[U comparable](list []dependent[U], kinds factKind, mark func(U)) {
	for _, o := range list {
		if o.kinds&kinds != 0 {
			mark(o.unit)
		}
	}
}

// IsEmpty reports whether no unit depends on anything.
func (d *Dependents[U]) IsEmpty() bool { return len(d.asked)+len(d.byName) == 0 }
