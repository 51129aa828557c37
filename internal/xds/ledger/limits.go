package ledger

import "fmt"

// Bounds of a stream's names, of all types together. A name costs about 1 KB. Envoy has less than
// 65,536 clusters: it needs more than 4 GB for so many.
const (
	maxNames     = 1 << 16
	maxNameBytes = 8 << 20
)

// TooManyNamesError is why a stream must end that subscribes to too many names, or lists too many that
// the mesh does not have.
type TooManyNamesError struct {
	What         string // "subscriptions"
	Names, Bytes int
}

// Error implements error.
func (e *TooManyNamesError) Error() string {
	return fmt.Sprintf("%s: %d names with %d bytes: the limit of a stream is %d names and %d bytes", e.What, e.Names, e.Bytes, maxNames, maxNameBytes)
}

// amountOfNames is a number of names and their bytes.
type amountOfNames struct{ names, bytes int }

func (a *amountOfNames) add(names, bytes int) { a.names, a.bytes = a.names+names, a.bytes+bytes }

func (a *amountOfNames) inBounds() bool { return a.names <= maxNames && a.bytes <= maxNameBytes }

// check sets the ledger's error if the amount is too large.
func (a *amountOfNames) check(l *Ledger, what string) bool {
	if a.inBounds() {
		return true
	}
	l.err = &TooManyNamesError{what, a.names, a.bytes}
	return false
}

// admits checks the names of a request before they are stored. Names that are subscribed already count
// again here, and not in checkSubscriptions.
func (l *Ledger) admits(k kind, r *Request) bool {
	var subscribed amountOfNames
	for _, list := range [...][][]byte{r.Subscribe, r.Names} {
		for _, n := range list {
			subscribed.add(1, len(n))
		}
	}
	if !subscribed.check(l, "subscriptions of one request") {
		return false
	}
	if len(r.Initial) == 0 || l.watches[k].on {
		return true
	}
	for _, nv := range r.Initial {
		l.listed.add(1, len(nv.Name))
	}
	if l.listed.inBounds() {
		return true // without a lookup of each name
	}
	for _, nv := range r.Initial {
		if l.lookupBytes(l.watches[k].typ, nv.Name) == nil {
			l.unknown.add(1, len(nv.Name))
		}
	}
	return l.unknown.check(l, "initial_resource_versions that the mesh does not have")
}

// checkSubscriptions checks the subscriptions of all types, and the names that the caller stores for them.
func (l *Ledger) checkSubscriptions() {
	all := l.aliases
	for k := range kinds {
		all.add(l.watches[k].names.Len(), l.watches[k].names.Size())
	}
	all.check(l, "subscriptions")
}
