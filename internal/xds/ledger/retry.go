package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Retry has resources sent once more, if send, that the proxy refused for a reason that may have gone without a
// change of them, one by one, and each so many times at most; until the answer they are held back as before. It tells
// whether there are such. A state-of-the-world has all that there is whenever it is sent.
func (l *Ledger) Retry(t resource.Type, send bool, most int, may func(message string) bool) bool {
	k, ok := l.watchOf(t)
	if !ok || l.protocol == Sotw || len(l.watches[k].held) == 0 {
		return false
	}
	w := &l.watches[k]
	var todo []string
	found := false
	for name, h := range w.held {
		if h.tries == most || !may(h.Message) {
			continue
		}
		found = true
		if send && !h.again {
			todo = append(todo, name)
		}
	}
	if len(todo) == 0 {
		return found
	}
	slices.Sort(todo)
	for _, name := range todo {
		again := *w.held[name]
		again.again = true
		again.tries++
		w.held[name] = &again
		w.groups = append(w.groups, []string{name})
	}
	w.owe(l.newest())
	return true
}

// repeated tells whether a response has but one resource, which was refused before: that it is again is nothing new.
func (w *watch) repeated(f *flight) bool {
	all := f.names()
	return len(all) == 1 && w.held[all[0]] != nil && w.held[all[0]].again
}
