package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Retry sends refused resources again, one by one, although they did not change: the reason of the refusal
// may have disappeared. It applies to resources whose message the function may accepts, and sends only if
// send is set. It retries a resource up to most times, and holds it until the answer. It reports
// whether there are such resources. Sotw streams are not retried, as each response has everything.
func (l *Ledger) Retry(t resource.Type, send bool, most int, may func(message string) bool) bool {
	k, ok := l.watchOf(t)
	if !ok || l.protocol == Sotw || len(l.watches[k].held) == 0 {
		return false
	}
	w := &l.watches[k]
	var due []string
	found := false
	for name, h := range w.held {
		if h.tries == most || !may(h.Message) {
			continue
		}
		found = true
		if send && !h.retry {
			due = append(due, name)
		}
	}
	if len(due) == 0 {
		return found
	}
	slices.Sort(due)
	for _, name := range due {
		retried := *w.held[name]
		retried.retry = true
		retried.tries++
		w.held[name] = &retried
		w.groups = append(w.groups, []string{name})
	}
	w.notePending(l.newest())
	return true
}

// isRepeated reports whether a response has only one resource, which was refused before.
func (w *watch) isRepeated(f *flight) bool {
	all := f.names()
	return len(all) == 1 && w.held[all[0]] != nil && w.held[all[0]].retry
}
