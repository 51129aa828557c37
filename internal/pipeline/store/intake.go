// Package store holds what the sources have said: immutable tables, numbered by
// Revision, and the intake through which events reach them.
package store

import (
	"maps"
	"slices"
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
	// Urgent events go before all others: they take endpoints away, to which requests
	// would still be sent. See RemovesEndpoints.
	Urgent bool
}

// Intake gathers events until the engine takes them. Events of one object coalesce:
// the newest object, the oldest time. It is bounded by the number of objects.
type Intake struct {
	ready chan struct{} // holds one token while there is something to take

	mu      sync.Mutex // guards all below
	pending map[model.Key]place
	groups  []*group // in the order in which their first objects came
	depth   map[model.Kind]int
	last    time.Time       // when the newest event was observed
	whole   bool            // groups have come to share objects: they are taken together
	waiting map[string]bool // sources that have not loaded yet
}

// group is what one Put has brought: its events are taken together.
type group struct {
	events []Event
	urgent bool
}

// place is where an object's event waits.
type place struct {
	group *group
	index int
}

// NewIntake makes an intake that is synced once each of the named sources has said so.
func NewIntake(sources ...string) *Intake {
	in := &Intake{
		ready: make(chan struct{}, 1), pending: map[model.Key]place{}, depth: map[model.Kind]int{}, waiting: map[string]bool{},
	}
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
	g := &group{}
	for _, e := range events {
		if e.Observed.After(in.last) {
			in.last = e.Observed
		}
		in.merge(g, e, len(events) > 1)
	}
	if len(g.events) > 0 {
		in.groups = append(in.groups, g)
	}
	in.mu.Unlock()
	in.signal()
}

// merge adds one event to the group, or to the one that has its object; mu is held.
func (in *Intake) merge(g *group, e Event, several bool) {
	at, ok := in.pending[e.Key]
	if !ok {
		in.pending[e.Key] = place{g, len(g.events)}
		in.depth[e.Key.Kind]++
		g.events = append(g.events, e)
		g.urgent = g.urgent || e.Urgent
		return
	}
	old := &at.group.events[at.index]
	e.Observed = old.Observed
	if e.Committed.IsZero() || (!old.Committed.IsZero() && old.Committed.Before(e.Committed)) {
		e.Committed = old.Committed
	}
	e.Urgent = e.Urgent || old.Urgent
	*old = e
	at.group.urgent = at.group.urgent || e.Urgent
	in.whole = in.whole || several && at.group != g
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

// batchLimit is how many objects are taken at once, so that in a storm of one kind others
// do not wait long: some ten milliseconds of work.
const batchLimit = 1024

// Take takes the next batch: everything that is there, up to a limit. Beyond it what is
// urgent goes first, and then all kinds by turns; what stays is ready at once.
func (in *Intake) Take() []Event {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.pending) <= batchLimit || in.whole {
		return in.takeAll()
	}
	events := in.takeSome(choose(in.groups, batchLimit))
	in.signal()
	return events
}

// TakeAll takes everything, however much it is: what sources have at their start is
// nothing that anybody waits for a part of.
func (in *Intake) TakeAll() []Event {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.takeAll()
}

// takeAll empties the intake; mu is held.
func (in *Intake) takeAll() []Event {
	if len(in.groups) == 0 {
		return nil
	}
	events := make([]Event, 0, len(in.pending))
	for _, g := range in.groups {
		events = append(events, g.events...)
	}
	in.groups, in.whole = nil, false
	in.pending = map[model.Key]place{} // after a storm clearing it would take as long as that was large
	clear(in.depth)
	return events
}

// takeSome takes the chosen groups; mu is held.
func (in *Intake) takeSome(chosen []bool) []Event {
	events := make([]Event, 0, batchLimit)
	rest := make([]*group, 0, len(in.groups))
	for i, g := range in.groups {
		if !chosen[i] {
			rest = append(rest, g)
			continue
		}
		for _, e := range g.events {
			delete(in.pending, e.Key)
			in.depth[e.Key.Kind]--
		}
		events = append(events, g.events...)
	}
	in.groups = rest
	return events
}

// choose marks groups with limit objects or a little more: urgent ones first, then one of
// each kind in turn, each kind's in their order. A group counts among its first kind.
func choose(groups []*group, limit int) []bool {
	chosen := make([]bool, len(groups))
	byKind := map[model.Kind][]int{}
	n := 0
	for i, g := range groups {
		switch {
		case g.urgent && n < limit:
			chosen[i] = true
			n += len(g.events)
		case !g.urgent:
			k := g.events[0].Key.Kind
			byKind[k] = append(byKind[k], i)
		}
	}
	kinds := slices.Sorted(maps.Keys(byKind))
	for n < limit && len(byKind) > 0 {
		for _, k := range kinds {
			if len(byKind[k]) == 0 {
				delete(byKind, k)
				continue
			}
			i := byKind[k][0]
			byKind[k] = byKind[k][1:]
			chosen[i] = true
			n += len(groups[i].events)
		}
	}
	return chosen
}

// Depth is the number of objects that wait.
func (in *Intake) Depth() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.pending)
}

// Waiting is what there is to take.
type Waiting struct {
	Objects, Endpoints int
	// First and Last are when the oldest and the newest event of it were observed.
	First, Last time.Time
}

// Waiting tells what there is to take.
func (in *Intake) Waiting() Waiting {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.groups) == 0 {
		return Waiting{}
	}
	return Waiting{Objects: len(in.pending), Endpoints: in.depth[model.KindEndpointSlice] + in.depth[model.KindWorkloadEntry],
		First: in.groups[0].events[0].Observed, Last: in.last}
}

// DepthOf is the number of objects of a kind that wait.
func (in *Intake) DepthOf(k model.Kind) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.depth[k]
}

func (in *Intake) signal() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}
