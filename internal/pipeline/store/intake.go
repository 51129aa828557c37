package store

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/defect"
	"github.com/moonsail/moonsail/internal/model"
)

// Event is one change of an object that a source has seen.
type Event struct {
	Key       model.Key
	Object    model.Object // nil: deleted
	Observed  time.Time    // when the source saw it
	Committed time.Time    // when the API server stored it, if known
	// Urgent events precede all others: they remove endpoints, to which requests would still be sent. See
	// RemovesEndpoints.
	Urgent bool
}

// Intake collects events until the engine takes them. Events of one object are merged: the newest object, the oldest
// time. So the intake is bounded by the number of objects.
type Intake struct {
	ready chan struct{} // has one token while there is something to take

	mu      sync.Mutex // guards all below
	pending map[model.Key]place
	groups  []*group // in the order of their first events
	depth   map[model.Kind]int
	last    time.Time       // when the newest event was observed
	whole   bool            // some groups share an object, so all are taken together
	waiting map[string]bool // sources that have not loaded yet
}

// group has the events of one Put, which are taken together.
type group struct {
	events []Event
	urgent bool
}

// place is the position of an object's event.
type place struct {
	group *group
	index int
}

// NewIntake makes an intake that is synced once Synced was called for each of the sources.
func NewIntake(sources ...string) *Intake {
	in := &Intake{
		ready: make(chan struct{}, 1), pending: map[model.Key]place{}, depth: map[model.Kind]int{}, waiting: map[string]bool{},
	}
	for _, s := range sources {
		in.waiting[s] = true
	}
	return in
}

// Put adds events. The events of one call are taken together.
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

// merge adds one event to the group, or to the group that already has its object. mu is held.
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
	if defect.Resurrection.On() && e.Object == nil && old.Object != nil {
		return
	}
	e.Observed = old.Observed
	if e.Committed.IsZero() || (!old.Committed.IsZero() && old.Committed.Before(e.Committed)) {
		e.Committed = old.Committed
	}
	e.Urgent = e.Urgent || old.Urgent
	*old = e
	at.group.urgent = at.group.urgent || e.Urgent
	in.whole = in.whole || several && at.group != g
}

// Synced records that a source has put everything that it had at its start.
func (in *Intake) Synced(source string) {
	in.mu.Lock()
	delete(in.waiting, source)
	in.mu.Unlock()
	in.signal()
}

// IsSynced reports whether all sources have loaded.
func (in *Intake) IsSynced() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.waiting) == 0
}

// Ready receives a token when there may be something to take, or when a source has synced.
func (in *Intake) Ready() <-chan struct{} { return in.ready }

// batchLimit is the maximum of objects in a batch, about ten milliseconds of work. It bounds how long other kinds wait
// during a storm of one kind.
const batchLimit = 1024

// Take takes the next batch: everything that waits, up to batchLimit. If more waits, urgent groups are first, and then
// all kinds take turns. The rest is ready at once.
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

// TakeAll takes everything without a limit, for the objects that sources have at their start.
func (in *Intake) TakeAll() []Event {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.takeAll()
}

// takeAll empties the intake. mu is held.
func (in *Intake) takeAll() []Event {
	if len(in.groups) == 0 {
		return nil
	}
	events := make([]Event, 0, len(in.pending))
	for _, g := range in.groups {
		events = append(events, g.events...)
	}
	in.groups, in.whole = nil, false
	in.pending = map[model.Key]place{} // clear would take as long as the largest storm
	clear(in.depth)
	return events
}

// takeSome takes the chosen groups. mu is held.
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

// choose selects groups with about limit objects: urgent groups first, then one group of each kind in turn. The order
// within a kind is kept. The kind of a group is that of its first event.
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

// Depth returns the number of objects that wait.
func (in *Intake) Depth() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.pending)
}

// Waiting describes the events that wait.
type Waiting struct {
	Objects, Endpoints int
	// First and Last are when the oldest and the newest event were observed.
	First, Last time.Time
}

// Waiting describes the events that wait.
func (in *Intake) Waiting() Waiting {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.groups) == 0 {
		return Waiting{}
	}
	return Waiting{Objects: len(in.pending), Endpoints: in.depth[model.KindEndpointSlice] + in.depth[model.KindWorkloadEntry],
		First: in.groups[0].events[0].Observed, Last: in.last}
}

// DepthOf returns the number of objects of a kind that wait.
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

// RemovesEndpoints reports whether a change removes endpoints, or makes them not ready. nil stands for an object that
// does not exist.
func RemovesEndpoints(old, now model.Object) bool {
	switch old := old.(type) {
	case *model.EndpointSlice:
		next, _ := now.(*model.EndpointSlice)
		return next == nil || loses(old, next)
	case *model.Workload:
		next, _ := now.(*model.Workload)
		return next == nil || next.Terminating && !old.Terminating || !next.Ready && old.Ready
	}
	return false
}

// loses reports whether some endpoint that was ready is missing or not ready.
func loses(old, now *model.EndpointSlice) bool {
	ready := make(map[string]bool, len(now.Members))
	for i := range now.Members {
		if m := &now.Members[i]; m.Ready && len(m.Addresses) > 0 {
			ready[m.Addresses[0]] = true
		}
	}
	for i := range old.Members {
		if m := &old.Members[i]; m.Ready && len(m.Addresses) > 0 && !ready[m.Addresses[0]] {
			return true
		}
	}
	return false
}
