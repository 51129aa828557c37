// Package derive turns the store's objects into views: what the proxies of one scope
// see, with every decision of Istio's semantics made.
//
// It is incremental by construction. A unit (one host of one scope, one host's endpoints,
// one listener) reads the index through a reader, which writes down each fact that was asked
// for. A change of objects touches facts; the units that asked for them are derived
// again, and nothing else. Deriving everything from scratch must give the same views:
// a property test holds it.
//
// It is pure: no clock, no I/O. One goroutine drives it.
package derive

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
	factAddress                              // services of a namespace without selector, by address
	factPolicy                               // objects of one kind that select workloads by one label pair, or all of a namespace
	factIdentities                           // who the workloads of a host are
	factSecret                               // a Secret by key
	factNamespaces                           // which namespaces there are, with their labels

	factsOfWildcards = factService | factVirtualService | factDestinationRule
)

// fact names what a unit can ask the index for, of one kind or of several.
type fact struct {
	name  string // a host; or "namespace/" and a virtual service's or Secret's name or a label pair; see policyFact, too
	kinds factKind
}

func serviceFact(h model.Host) fact         { return fact{string(h), factService} }
func virtualServiceFact(h model.Host) fact  { return fact{string(h), factVirtualService} }
func destinationRuleFact(h model.Host) fact { return fact{string(h), factDestinationRule} }
func endpointsFact(h model.Host) fact       { return fact{string(h), factEndpoints} }
func identitiesFact(h model.Host) fact      { return fact{string(h), factIdentities} }
func secretFact(k model.Key) fact           { return fact{k.String(), factSecret} }
func delegateFact(k model.Key) fact         { return fact{k.Namespace + "/" + k.Name, factDelegate} }
func selectingFact(ns, pair string) fact    { return fact{ns + "/" + pair, factSelecting} }
func namespacesFact() fact                  { return fact{"", factNamespaces} }
func addressFact(ns, address string) fact   { return fact{ns + "/" + address, factAddress} }

// factSet collects the facts that a batch has touched.
type factSet map[fact]struct{}

func (s factSet) add(f fact) { s[f] = struct{}{} }

// factList is what one unit has asked for: a few, each name once.
type factList []fact

func (l *factList) add(f fact) {
	for i := range *l {
		if (*l)[i].name == f.name {
			(*l)[i].kinds |= f.kinds
			return
		}
	}
	*l = append(*l, f)
}

func (l factList) has(name string) bool {
	return slices.ContainsFunc(l, func(f fact) bool { return f.name == name })
}

// dependent is a unit that has asked for facts of one name.
type dependent struct {
	unit  unit
	kinds factKind
}
