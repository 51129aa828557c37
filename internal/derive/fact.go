// Package derive turns the store's objects into views: what the proxies of one scope
// see, with every decision of Istio's semantics made.
//
// It is incremental by construction. A unit (one host of one scope, one host's endpoints,
// one listener) reads the index through a Reader, which writes down each fact that was asked
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

type factKind uint8

const (
	factService         factKind = iota // the services that cover a host
	factVirtualService                  // the mesh's virtual services that cover a host
	factDestinationRule                 // the destination rules that cover a host
	factEndpoints                       // the endpoints of a host
	factDelegate                        // a virtual service by key
	factSelecting                       // services of a namespace that select by one label pair
)

// fact names one thing that a unit can ask the index for.
type fact struct {
	kind     factKind
	ns, name string
}

func serviceFact(h model.Host) fact { return fact{kind: factService, name: string(h)} }
func virtualServiceFact(h model.Host) fact {
	return fact{kind: factVirtualService, name: string(h)}
}
func destinationRuleFact(h model.Host) fact {
	return fact{kind: factDestinationRule, name: string(h)}
}
func endpointsFact(h model.Host) fact { return fact{kind: factEndpoints, name: string(h)} }
func delegateFact(k model.Key) fact {
	return fact{kind: factDelegate, ns: k.Namespace, name: k.Name}
}
func selectingFact(ns, pair string) fact {
	return fact{kind: factSelecting, ns: ns, name: pair}
}

// coveredBy tells whether an object of host h concerns who asked for f: a wildcard covers
// many hosts. Who asks for a host writes down that one fact, not one for each pattern that
// could cover it; a change of a wildcard, which is rare, looks through all facts instead.
func (f fact) coveredBy(kind factKind, h model.Host) bool {
	return f.kind == kind && h.Matches(model.Host(f.name))
}

// factSet collects the facts that a batch has touched.
type factSet map[fact]struct{}

func (s factSet) add(f fact) { s[f] = struct{}{} }

// factList is what one unit has asked for: a few, each once.
type factList []fact

func (l *factList) add(f fact) {
	if !slices.Contains(*l, f) {
		*l = append(*l, f)
	}
}
