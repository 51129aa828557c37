// Package store holds what the sources have said: immutable tables, numbered by
// Revision, and the intake through which events reach them.
package store

import (
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Event is one thing that a source has seen.
type Event struct {
	Key       model.Key
	Object    model.Object // nil: deleted
	Observed  time.Time    // when the source saw it
	Committed time.Time    // when the API server had it, where that is known
}

// Intake gathers events until the engine takes them. Events of one object coalesce:
// the newest object, the oldest time. It is bounded by the number of objects.
type Intake struct {
	ready chan struct{} // holds one token while there is something to take

	mu      sync.Mutex // guards all below
	pending map[model.Key]int
	events  []Event         // in the order in which their objects came first
	waiting map[string]bool // sources that have not loaded yet
}

// NewIntake makes an intake that is synced once each of the named sources has said so.
func NewIntake(sources ...string) *Intake {
	in := &Intake{ready: make(chan struct{}, 1), pending: map[model.Key]int{}, waiting: map[string]bool{}}
	for _, s := range sources {
		in.waiting[s] = true
	}
	return in
}

// Put adds events. All of one call are taken together.
func (in *Intake) Put(events ...Event) {
	if len(events) == 0 {
		return
	}
	in.mu.Lock()
	for _, e := range events {
		in.merge(e)
	}
	in.mu.Unlock()
	in.signal()
}

// merge adds one event; mu is held.
func (in *Intake) merge(e Event) {
	i, ok := in.pending[e.Key]
	if !ok {
		in.pending[e.Key] = len(in.events)
		in.events = append(in.events, e)
		return
	}
	old := &in.events[i]
	e.Observed = old.Observed
	if e.Committed.IsZero() || (!old.Committed.IsZero() && old.Committed.Before(e.Committed)) {
		e.Committed = old.Committed
	}
	*old = e
}

// Synced says that a source has put everything it had at its start.
func (in *Intake) Synced(source string) {
	in.mu.Lock()
	delete(in.waiting, source)
	in.mu.Unlock()
	in.signal()
}

// IsSynced tells whether all sources have loaded.
func (in *Intake) IsSynced() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.waiting) == 0
}

// Ready has a token when there may be something to take, or when a source has synced.
func (in *Intake) Ready() <-chan struct{} { return in.ready }

// Take takes everything that is there: the next batch.
func (in *Intake) Take() []Event {
	in.mu.Lock()
	defer in.mu.Unlock()
	events := in.events
	in.events = nil
	clear(in.pending)
	return events
}

// Depth is the number of objects that wait.
func (in *Intake) Depth() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.events)
}

func (in *Intake) signal() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}
