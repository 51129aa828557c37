// Package engine runs the pipeline: events -> store -> derive -> translate -> tables ->
// streams. It is the one place where the stages meet.
//
// One goroutine, Run's, does all the work of a batch, and everything else that reads or
// changes what is derived. A batch is whatever arrived while the last one was worked on:
// no timer stands between an event and its push.
package engine

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Publisher brings committed tables to the streams that are bound to them.
type Publisher interface {
	Publish(rev model.Revision, tables []*table.Table)
}

// ChangeRecorder notes when each revision passed which stage.
type ChangeRecorder interface {
	Begin(rev model.Revision, objects []changelog.ChangedObject, observed time.Time)
	Mark(rev model.Revision, stage changelog.Stage, at time.Time)
	Resources(rev model.Revision, n int, bytes int64)
}

// Options are what an Engine is made of.
type Options struct {
	Mesh     *model.Mesh // nil: the default
	Intake   *store.Intake
	Recorder ChangeRecorder
	// Removed is told of endpoints that went, before their revision is published; nil: nobody is.
	Removed func([]changelog.RemovedEndpoint)
	// Applied is told of each batch once it is in the store; it does not block. nil: nobody is.
	Applied func([]store.Change)
	Log     *slog.Logger
	// Debounce holds events back; the zero value does not.
	Debounce Debounce
	// Workers derive and translate scopes side by side; 0: one a CPU.
	Workers int
	// Sharding says which route configurations are split for proxies that get them by scopes; the
	// zero value is derive.AutoSharding.
	Sharding derive.Sharding
	// IdleGroup is how long a scope is kept after its last proxy has gone, so that one
	// that comes back finds it; 0: a minute.
	IdleGroup time.Duration
	// GroupsPerIdentity is how many scopes proxies of one verified identity may have opened; 0 and less: any number.
	GroupsPerIdentity int
}

func newDeriver(opts *Options) *derive.Deriver {
	d := derive.New(opts.Mesh, opts.Workers)
	if opts.Sharding != (derive.Sharding{}) {
		d.SetSharding(opts.Sharding)
	}
	return d
}

// Engine is the pipeline.
type Engine struct {
	// Fixed.
	opts   Options
	mesh   *model.Mesh
	log    *slog.Logger
	store  *store.Store
	intern *resource.Interner
	calls  chan func()   // bounded: who calls waits for its turn
	done   chan struct{} // closed when Run has ended

	// Touched only by Run's goroutine.
	publisher Publisher
	deriver   *derive.Deriver
	groups    map[derive.GroupKey]*group
	bindings  map[*model.Proxy]*binding
	waiting   map[*binding]chan<- []*table.Table // binds that wait for the sources to load
	failures  map[failureKey]Failure             // what could not be translated
	opened    map[owner]int                      // of scopes, how many for whom; none is 0

	// loaded: all that the sources had at their start is in the store. Set by Run's
	// goroutine, read by anybody.
	loaded atomic.Bool
	// lacking likewise: hosts for which no address is left.
	lacking atomic.Pointer[[]derive.Lack]
}

// New makes an engine. Run must be called once for anything to happen.
func New(opts Options) *Engine {
	if opts.Mesh == nil {
		opts.Mesh = model.DefaultMesh()
	}
	if opts.Workers == 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if opts.IdleGroup == 0 {
		opts.IdleGroup = time.Minute
	}
	return &Engine{
		opts: opts, mesh: opts.Mesh, log: opts.Log,
		store:    store.New(),
		intern:   resource.NewInterner(),
		calls:    make(chan func(), 64),
		done:     make(chan struct{}),
		failures: map[failureKey]Failure{},
		opened:   map[owner]int{},
		deriver:  newDeriver(&opts),
		groups:   map[derive.GroupKey]*group{},
		bindings: map[*model.Proxy]*binding{},
		waiting:  map[*binding]chan<- []*table.Table{},
	}
}

// Snapshot is the newest state of the store.
func (e *Engine) Snapshot() *store.Snapshot { return e.store.Snapshot() }

// Synced tells whether proxies are served: all sources have loaded, and what they had is
// in the store.
func (e *Engine) Synced() bool { return e.loaded.Load() }

// Run works until ctx ends. publisher is told of each revision that changed tables.
func (e *Engine) Run(ctx context.Context, publisher Publisher) {
	defer close(e.done)
	e.publisher = publisher
	idle := time.NewTicker(e.opts.IdleGroup / 4)
	defer idle.Stop()
	due := time.NewTimer(time.Hour) // of what Debounce holds back
	defer due.Stop()
	e.take()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.opts.Intake.Ready():
			e.takeWhenDue(due)
		case <-due.C:
			e.takeWhenDue(due)
		case call := <-e.calls:
			call()
		case now := <-idle.C:
			e.closeIdle(now)
		}
	}
}

// take works on what has arrived. Nothing is worked on before the sources have loaded: what
// is half there means nothing to anybody. A source puts all that it has before it says that
// it is synced, so that the first batch has all of it.
func (e *Engine) take() {
	if e.loaded.Load() {
		e.batch(e.opts.Intake.Take())
		return
	}
	if !e.opts.Intake.IsSynced() {
		return
	}
	e.batch(e.opts.Intake.TakeAll())
	e.loaded.Store(true)
	e.admit()
}

// batch takes events through all stages.
func (e *Engine) batch(events []store.Event) {
	snap, changes := e.store.Apply(events)
	if len(changes) == 0 {
		return
	}
	rev := snap.Revision
	e.opts.Recorder.Begin(rev, changedObjects(changes), firstObserved(changes))
	e.opts.Recorder.Mark(rev, changelog.StageStore, time.Now())
	if e.opts.Removed != nil {
		e.opts.Removed(append(removedEndpoints(rev, changes), e.draining(rev, changes)...))
	}

	if e.opts.Applied != nil {
		e.opts.Applied(changes)
	}

	update := e.deriver.Apply(changes)
	e.noteLacking()
	var moved []*binding
	if update.Rekey != nil {
		moved = e.rekey(update.Rekey, update.Deltas)
	}
	e.opts.Recorder.Mark(rev, changelog.StageDerive, time.Now())

	touched, n, bytes := e.commit(rev, update.Deltas)
	e.opts.Recorder.Resources(rev, n, bytes)
	e.opts.Recorder.Mark(rev, changelog.StageTranslate, time.Now())
	for _, b := range moved {
		b.rebind(e.tables(b))
	}
	e.publisher.Publish(rev, touched)
}

// commit translates what differs and puts it into the scopes' tables. It gives those that
// changed, the number of resources in which they did, and these resources' bytes.
func (e *Engine) commit(rev model.Revision, deltas map[derive.GroupKey]*derive.Delta) (touched []*table.Table, resources int, bytes int64) {
	for key, list := range e.translate(deltas) {
		t := e.groups[key].table
		if n := t.Commit(rev, list); n > 0 {
			resources += n
			bytes += changedBytes(t.State(), list)
			touched = append(touched, t)
		}
	}
	return touched, resources, bytes
}

func changedObjects(changes []store.Change) []changelog.ChangedObject {
	out := make([]changelog.ChangedObject, len(changes))
	for i, c := range changes {
		o := changelog.ChangedObject{Key: c.Key, Operation: changelog.Updated, Observed: c.Event.Observed, Committed: c.Event.Committed}
		switch {
		case c.Old == nil:
			o.Operation = changelog.Created
		case c.New == nil:
			o.Operation = changelog.Deleted
		default:
			o.Moved = !model.SameAudience(c.Old, c.New)
		}
		if c.New != nil {
			o.ResourceVersion = c.New.Metadata().ResourceVersion
		}
		out[i] = o
	}
	return out
}

// firstObserved is when the oldest event of a batch was seen: the start of its clock.
func firstObserved(changes []store.Change) time.Time {
	first := changes[0].Event.Observed
	for _, c := range changes[1:] {
		if c.Event.Observed.Before(first) {
			first = c.Event.Observed
		}
	}
	return first
}

// changedBytes is the size of those updates that made a difference. Whole route
// configurations are not counted: they are put together of parts that are.
func changedBytes(s *table.State, updates []table.Update) int64 {
	var n int64
	for _, u := range updates {
		if u.Resource == nil || u.Type == resource.RouteConfig {
			continue
		}
		if e := s.Get(u.Type, u.Name); e != nil && e.Revision == s.Revision {
			n += int64(len(u.Resource.DeltaField()))
		}
	}
	return n
}
