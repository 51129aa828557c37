// Package engine runs the stages of the pipeline one after the other: events -> store -> derive ->
// translate -> tables -> streams. It is the only package in which the stages meet.
//
// Invariants:
//
//  1. One goroutine, that of Run, does all work of a batch. It owns the deriver, the open proxy groups
//     (groups.go), the streams that are bound to them (bindings.go), and the list of what cannot be
//     translated (failures.go). Other goroutines pass it a function through call.
//  2. A batch is what arrived while the previous batch was processed. No timer delays an event, except
//     Debounce, which is off by default.
//  3. Nothing is derived before all sources have loaded. A proxy that connects earlier waits: an empty
//     answer would remove everything that it has.
//  4. A resource that cannot be translated keeps its last valid version in the table.
//
// Start reading at Engine.Run and Engine.batch.
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
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Publisher announces committed tables to the streams that are bound to them.
type Publisher interface {
	Publish(rev model.Revision, tables []*table.Table)
}

// ChangeRecorder records when each revision passed each stage.
type ChangeRecorder interface {
	Begin(rev model.Revision, objects []changelog.ChangedObject, observed time.Time)
	Mark(rev model.Revision, stage changelog.Stage, at time.Time)
	Resources(rev model.Revision, n int, bytes int64)
}

// Options configure an Engine.
type Options struct {
	Mesh     *model.Mesh // nil: the default
	Intake   *store.Intake
	Recorder ChangeRecorder
	// Removed receives endpoints that were removed, before their revision is published; may be nil.
	Removed func([]changelog.RemovedEndpoint)
	// Applied receives each batch once it is in the store. It must not block; may be nil.
	Applied func([]store.Change)
	Log     *slog.Logger
	// Debounce holds events back; the zero value does not.
	Debounce Debounce
	// Workers is how many proxy groups are derived and translated at the same time; 0: one for each CPU.
	Workers int
	// Sharding selects the route configurations that are split into shards; the zero value is
	// derive.AutoSharding.
	Sharding derive.Sharding
	// IdleGroup is how long a proxy group is kept after its last proxy has disconnected, so that a
	// proxy that reconnects finds it; 0: a minute.
	IdleGroup time.Duration
	// GroupsPerIdentity limits the proxy groups that proxies of one verified identity may have open when
	// they connect; 0 or less: no limit. A change that splits groups moves connected proxies to new ones
	// beyond the limit, since they would otherwise keep a configuration that is not theirs.
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
	// Read-only after New.
	opts   Options
	log    *slog.Logger
	store  *store.Store
	intern *resource.Interner
	calls  chan func()   // bounded: callers wait for their turn
	done   chan struct{} // closed when Run has ended

	// Owned by Run's goroutine.
	publisher Publisher
	deriver   *derive.Deriver
	groups    *groups
	bindings  *bindings
	failures  *failures

	// loaded is closed when everything that the sources had at their start is in the store.
	loaded chan struct{}
	// lacking lists the hosts for which no address is left. Run's goroutine sets it, any goroutine reads it.
	lacking atomic.Pointer[[]index.Lack]
}

// New makes an engine. It does nothing until Run is called, once.
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
	e := &Engine{
		opts: opts, log: opts.Log,
		store:    store.New(),
		intern:   resource.NewInterner(),
		calls:    make(chan func(), 64),
		done:     make(chan struct{}),
		loaded:   make(chan struct{}),
		deriver:  newDeriver(&opts),
		failures: newFailures(opts.Log),
	}
	e.groups = newGroups(e.deriver, e.failures, opts.GroupsPerIdentity)
	e.bindings = newBindings(e.deriver, e.groups)
	return e
}

// Snapshot returns the newest state of the store.
func (e *Engine) Snapshot() *store.Snapshot { return e.store.Snapshot() }

// Loaded returns a channel that is closed when proxies are served: all sources have loaded, and what they
// had is in the store.
func (e *Engine) Loaded() <-chan struct{} { return e.loaded }

// Synced reports whether Loaded is closed.
func (e *Engine) Synced() bool {
	select {
	case <-e.loaded:
		return true
	default:
		return false
	}
}

// Run works until ctx ends. It announces each revision to publisher, with the tables that changed.
func (e *Engine) Run(ctx context.Context, publisher Publisher) {
	defer close(e.done)
	e.publisher = publisher
	idle := time.NewTicker(e.opts.IdleGroup / 4)
	defer idle.Stop()
	due := time.NewTimer(time.Hour) // fires when events that Debounce holds back are due
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
			e.groups.closeIdle(now.Add(-e.opts.IdleGroup))
		}
	}
}

// takeWhenDue takes the next batch, or sets the timer to when it is due.
func (e *Engine) takeWhenDue(timer *time.Timer) {
	if e.Synced() {
		if wait := e.opts.Debounce.wait(time.Now(), e.opts.Intake.Waiting()); wait > 0 {
			timer.Reset(wait)
			return
		}
	}
	e.take()
}

// take processes the next batch. Before the sources have loaded it does nothing. A source puts
// everything that it has before it reports that it is synced, so the first batch contains all of it.
func (e *Engine) take() {
	if e.Synced() {
		e.batch(e.opts.Intake.Take())
		return
	}
	if !e.opts.Intake.IsSynced() {
		return
	}
	e.batch(e.opts.Intake.TakeAll())
	close(e.loaded)
	e.bindWaiting()
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
		e.opts.Removed(append(removedEndpoints(rev, changes), drainingEndpoints(rev, changes, e.deriver.Index().HostsAt)...))
	}
	if e.opts.Applied != nil {
		e.opts.Applied(changes)
	}

	update := e.deriver.Apply(changes)
	e.noteLacking()
	var moved []*binding
	if update.Rekey != nil {
		moved = e.bindings.rekey(update.Rekey, update.Deltas)
	}
	e.opts.Recorder.Mark(rev, changelog.StageDerive, time.Now())

	touched, n, bytes := e.commit(rev, update.Deltas)
	e.opts.Recorder.Resources(rev, n, bytes)
	e.opts.Recorder.Mark(rev, changelog.StageTranslate, time.Now())
	for _, b := range moved {
		b.rebind(e.groups.tables(b.keys))
	}
	e.publisher.Publish(rev, touched)
}

// commit translates deltas and puts the result into the tables of their proxy groups. It returns the
// tables that changed, the number of resources that differ, and the bytes of these resources.
func (e *Engine) commit(rev model.Revision, deltas map[derive.GroupKey]*derive.Delta) (touched []*table.Table, resources int, bytes int64) {
	for key, list := range e.translate(deltas) {
		t := e.groups.open[key].table
		if n := t.Commit(rev, list); n > 0 {
			resources += n
			bytes += changedBytes(t.State(), list)
			touched = append(touched, t)
		}
	}
	return touched, resources, bytes
}

// Debounce holds events back until none has arrived for a while, as Istio does
// (PILOT_DEBOUNCE_AFTER, PILOT_DEBOUNCE_MAX, PILOT_ENABLE_EDS_DEBOUNCE). The zero value holds
// nothing back: a batch is what arrived while the previous one was processed.
type Debounce struct {
	After time.Duration // of quiet; 0: off
	Max   time.Duration // no event waits longer; 0: no limit
	// EndpointsPass: a change of endpoints is taken at once, together with everything that waits.
	EndpointsPass bool
}

// wait returns how long the waiting events must wait from now; 0 or less: they are due.
//
// Max counts from the time when the source saw the first event, also while a batch is processed. Events
// that have waited that long at the end of a batch are taken next, and not held back again.
// Batches are bounded, and so is the time beyond Max.
func (d Debounce) wait(now time.Time, w store.Waiting) time.Duration {
	if d.After <= 0 || w.Objects == 0 || d.EndpointsPass && w.Endpoints > 0 {
		return 0
	}
	wait := d.After - now.Sub(w.Last)
	if d.Max > 0 {
		wait = min(wait, d.Max-now.Sub(w.First))
	}
	return wait
}
