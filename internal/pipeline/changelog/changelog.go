// Package changelog records where the time of each change goes: a log of changes, each from its first
// event to the last proxy's answer, and the control plane's metrics.
//
// The life of a revision is in changelog.go. Its steps, in order:
//
//	Begin      the engine took a batch
//	Mark       a stage of the engine ended: store, derive, translate
//	Resources  how much differs
//	Published  the streams that are bound to changed tables were woken
//	Sent       a response that contains the revision was sent
//	Settled    a stream ACKed or refused the revision, is not concerned, or ended
//	finish     the last stream has settled: one log line, metrics, traces
//
// A record counts for one revision, and change.go is what readers get. The other files answer more
// questions about changes: the last change of an object and removed endpoints (history.go), waiting for a
// change (follow.go), the slowest answers (trace.go). Metrics are in metrics*.go.
//
// Invariants:
//
//  1. The stages of a revision add up to its total. Each begins where the previous one ends.
//  2. A revision is finished once, when every stream that Published counted has settled. It is never
//     finished while its stages are in progress, although a stream may settle before Published.
//  3. Memory is bounded by the size of the ring and the number of objects, not by proxies or changes.
//  4. Streams never block, and take a lock only if a Tracer is set or a reader waits for a change.
package changelog

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

var _ distribution.Observer = (*Log)(nil)

// Log records the newest revisions. It is the Observer of the xDS server. A revision's place in the ring
// is its number, so streams find it without a lock.
//
// The engine's goroutine calls Begin, Mark and Resources, in the order of revisions. The server calls
// Published, Sent and Settled, at any time and from any goroutine. Any goroutine may read.
type Log struct {
	// Read-only.
	log     *slog.Logger
	metrics *Metrics
	Tracers []Tracer    // set before the first change
	lines   chan Change // for Run; bounded: a line that does not fit is counted and dropped

	ring   []atomic.Pointer[record]
	newest atomic.Uint64 // the newest revision in the ring

	objects   objectIndex
	removals  removals
	followers followers
}

// DefaultChanges is the default number of changes that a log remembers.
const DefaultChanges = 1024

// pendingLines bounds the log lines that wait for Run.
const pendingLines = 256

// New makes a log of the newest size changes; 0: DefaultChanges.
func New(size int, log *slog.Logger, metrics *Metrics) *Log {
	if size <= 0 {
		size = DefaultChanges
	}
	return &Log{
		log: log, metrics: metrics,
		lines: make(chan Change, pendingLines),
		ring:  make([]atomic.Pointer[record], size),
	}
}

// Begin starts the clock of a revision. observed is the time of the first event of its batch.
func (l *Log) Begin(rev model.Revision, objects []ChangedObject, observed time.Time) {
	r := newRecord(rev, objects, observed)
	if len(l.Tracers) > 0 {
		r.answers = &answers{}
	}
	l.metrics.changed(objects)
	old := l.slot(rev).Swap(r)
	l.newest.Store(uint64(rev))
	size := model.Revision(len(l.ring))
	l.objects.note(rev, objects, observed, max(rev, size)-size)
	if old != nil && !old.distributed() { // some proxy never answered
		l.metrics.forgotten.Inc()
		l.queueLine(old)
		l.trace(old)
		l.followers.ended(old.rev)
	}
	l.followers.began(rev, objects)
}

// Mark ends a stage of the engine: StageStore, StageDerive or StageTranslate.
func (l *Log) Mark(rev model.Revision, stage Stage, at time.Time) {
	r := l.find(rev)
	if r == nil {
		return
	}
	r.ends[stage].last(at.Sub(r.observed))
	switch stage {
	case StageStore:
		l.metrics.stored(r.kinds, at)
	case StageTranslate:
		l.metrics.processed(r.kinds, at.Sub(r.observed)-r.ends[StageStore].get())
	}
}

// Resources adds to the number, and the encoded bytes, of the resources that a revision changed.
func (l *Log) Resources(rev model.Revision, n int, bytes int64) {
	if r := l.find(rev); r != nil {
		r.resources.Add(int64(n))
		r.bytes.Add(bytes)
	}
}

// Published records how many streams are bound to tables that a revision changed. With none the revision
// is distributed at once, so it is also called if no table changed.
func (l *Log) Published(rev model.Revision, concerned int, at time.Time) {
	if r := l.find(rev); r != nil && r.publish(concerned, at) {
		l.finish(r)
	}
}

// Sent records that a response with resources of a revision was sent to some proxy.
func (l *Log) Sent(rev model.Revision, at time.Time) {
	if r := l.find(rev); r != nil {
		r.ends[StageSend].earliest(at.Sub(r.observed))
	}
}

// Settled records how the revisions in (from, to] ended for one stream. Published must have counted the
// stream for each of them that is in the log.
func (l *Log) Settled(from, to model.Revision, outcome distribution.Outcome, at time.Time) {
	if size := model.Revision(len(l.ring)); to > size && from < to-size {
		from = to - size
	}
	var newer *record
	for rev := to; rev > from; rev-- {
		r := l.find(rev)
		if r == nil {
			continue
		}
		if outcome == distribution.ACKed || outcome == distribution.NACKed {
			r.sentWith(newer)
			if newer != nil && outcome == distribution.ACKed {
				r.overtaken.Add(1)
				l.metrics.superseded.Inc()
			}
			newer = r
		}
		if outcome == distribution.ACKed {
			l.metrics.converged(at.Sub(r.observed))
		}
		if r.settle(outcome, at) {
			l.finish(r)
		}
	}
}

// finish is called once for each revision, when its last stream has settled.
func (l *Log) finish(r *record) {
	l.metrics.distributed(r)
	l.queueLine(r)
	l.trace(r)
	l.followers.ended(r.rev)
}

// queueLine queues the log line of a revision. It never blocks, since streams call it.
func (l *Log) queueLine(r *record) {
	select {
	case l.lines <- r.snapshot():
	default:
		l.metrics.linesDropped.Inc()
	}
}

// Run writes log lines until ctx ends, and then those that are left.
func (l *Log) Run(ctx context.Context) {
	for {
		select {
		case c := <-l.lines:
			l.write(&c)
		case <-ctx.Done():
			l.drain()
			return
		}
	}
}

func (l *Log) drain() {
	for {
		select {
		case c := <-l.lines:
			l.write(&c)
		default:
			return
		}
	}
}

func (l *Log) write(c *Change) {
	level, msg := slog.LevelInfo, "change distributed"
	if c.State != Distributed {
		level, msg = slog.LevelWarn, "change never fully distributed"
	} else if c.Proxies.Nacked > 0 {
		level, msg = slog.LevelWarn, "change distributed, refused by some"
	}
	l.log.LogAttrs(context.Background(), level, msg, c.Attrs()...)
}

// Newest returns the newest revision that has begun; 0: none.
func (l *Log) Newest() model.Revision { return model.Revision(l.newest.Load()) }

// Change returns a revision as it is now; false: the log does not have it, or not any more.
func (l *Log) Change(rev model.Revision) (Change, bool) {
	r := l.find(rev)
	if r == nil {
		return Change{}, false
	}
	return r.snapshot(), true
}

// Changes yields the changes that the log remembers, newest first.
func (l *Log) Changes() iter.Seq[Change] {
	return func(yield func(Change) bool) {
		newest := l.Newest()
		for i := range model.Revision(len(l.ring)) {
			if i >= newest {
				return
			}
			if r := l.find(newest - i); r != nil && !yield(r.snapshot()) {
				return
			}
		}
	}
}

func (l *Log) slot(rev model.Revision) *atomic.Pointer[record] {
	return &l.ring[uint64(rev)%uint64(len(l.ring))]
}

func (l *Log) find(rev model.Revision) *record {
	if r := l.slot(rev).Load(); r != nil && r.rev == rev {
		return r
	}
	return nil
}

// numOutcomes is the number of distribution.Outcomes.
const numOutcomes = distribution.Gone + 1

// maxObjects bounds the objects of a batch that a record remembers. The first load of a large mesh is one
// batch.
const maxObjects = 32

// record is one revision from Begin to its last settled stream. Many streams settle it at the same time.
type record struct {
	// Read-only once the record is in the ring.
	rev      model.Revision
	objects  []ChangedObject // at most maxObjects
	count    int             // of all objects
	observed time.Time
	kinds    []kindSeen
	answers  *answers // nil without a Tracer

	ends      [NumStages]instant // of the stages
	published instant

	superseded atomic.Bool
	overtaken  atomic.Int64 // streams that ACKed it together with a newer revision
	resources  atomic.Int64
	bytes      atomic.Int64
	concerned  atomic.Int64
	outcomes   [numOutcomes]atomic.Int64

	// open is the number of streams that have not settled. It starts at the constant unpublished, which keeps it
	// above 0 while streams settle before Published. Published replaces the constant by the number of concerned
	// streams. The caller that brings open to 0 finishes the revision.
	open atomic.Int64
}

// unpublished keeps open above 0 until Published subtracts it.
const unpublished = 1 << 40

// kindSeen is a kind of the changed objects, with the time of its oldest event.
type kindSeen struct {
	kind     model.Kind
	observed time.Time
}

func newRecord(rev model.Revision, objects []ChangedObject, observed time.Time) *record {
	r := &record{rev: rev, count: len(objects), observed: observed, kinds: kindsOf(objects, observed)}
	r.objects = slices.Clone(objects[:min(maxObjects, len(objects))])
	r.open.Store(unpublished)
	return r
}

// kindsOf lists the distinct kinds of objects, each with its oldest event.
func kindsOf(objects []ChangedObject, observed time.Time) []kindSeen {
	var kinds []kindSeen
	for _, o := range objects {
		at := o.Observed
		if at.IsZero() {
			at = observed
		}
		i := slices.IndexFunc(kinds, func(k kindSeen) bool { return k.kind == o.Kind })
		switch {
		case i < 0:
			kinds = append(kinds, kindSeen{o.Kind, at})
		case at.Before(kinds[i].observed):
			kinds[i].observed = at
		}
	}
	return kinds
}

// publish records the concerned streams and reports whether the revision is thereby distributed.
func (r *record) publish(concerned int, at time.Time) bool {
	if !r.published.first(at.Sub(r.observed)) {
		return false // published before: the first count is valid
	}
	r.concerned.Store(int64(concerned))
	return r.open.Add(int64(concerned)-unpublished) == 0
}

// settle counts the outcome of one stream and reports whether it was the last one.
func (r *record) settle(outcome distribution.Outcome, at time.Time) bool {
	if outcome == distribution.ACKed || outcome == distribution.NACKed {
		r.ends[StageAck].last(at.Sub(r.observed))
	}
	r.outcomes[outcome].Add(1)
	return r.open.Add(-1) == 0
}

// sentWith handles a revision for which no response was sent, because a newer revision replaced it while
// it waited. The response of the newer one contained it, so it takes over the time of that response.
func (r *record) sentWith(newer *record) {
	if newer == nil || r.ends[StageSend].get() >= 0 {
		return
	}
	if sent := newer.ends[StageSend].get(); sent >= 0 && r.ends[StageSend].first(newer.observed.Add(sent).Sub(r.observed)) {
		r.superseded.Store(true)
	}
}

// distributed reports whether all streams have settled.
func (r *record) distributed() bool { return r.open.Load() <= 0 }

func (r *record) timeline() Timeline {
	var t Timeline
	for i := range t {
		t[i] = r.ends[i].get()
	}
	return t
}

// snapshot returns a copy for readers. It reads the state before the counts: a change in the state
// Distributed has complete counts.
func (r *record) snapshot() Change {
	c := Change{
		Revision: r.rev, State: Building, Objects: r.objects, ObjectCount: r.count, Observed: r.observed,
		Superseded: r.superseded.Load(),
	}
	switch {
	case r.distributed():
		c.State = Distributed
	case r.published.get() >= 0:
		c.State = Distributing
	}
	c.Timeline = r.timeline()
	c.Times = Times{
		Stored: r.moment(c.Timeline[StageStore]), Derived: r.moment(c.Timeline[StageDerive]),
		Translated: r.moment(c.Timeline[StageTranslate]), Published: r.moment(r.published.get()),
		FirstSent: r.moment(c.Timeline[StageSend]), LastAcked: r.moment(c.Timeline[StageAck]),
	}
	c.Resources, c.Bytes = int(r.resources.Load()), r.bytes.Load()
	c.Proxies = Proxies{
		Concerned: int(r.concerned.Load()), Acked: r.outcome(distribution.ACKed), NotConcerned: r.outcome(distribution.NotConcerned),
		Nacked: r.outcome(distribution.NACKed), Gone: r.outcome(distribution.Gone), Superseded: int(r.overtaken.Load()),
	}
	return c
}

func (r *record) outcome(o distribution.Outcome) int { return int(r.outcomes[o].Load()) }

func (r *record) moment(since time.Duration) time.Time {
	if since < 0 {
		return time.Time{}
	}
	return r.observed.Add(since)
}

// instant is a time since the first event of the change. Many goroutines may set it.
type instant struct{ atomic.Int64 } // 0: not set; else one more than the duration

// get returns the duration, or never.
func (i *instant) get() time.Duration { return time.Duration(i.Load() - 1) }

// first sets the instant unless it is set, and reports whether it did.
func (i *instant) first(d time.Duration) bool {
	return i.Load() == 0 && i.CompareAndSwap(0, int64(max(0, d))+1)
}

// last moves the instant forward, never back.
func (i *instant) last(d time.Duration) {
	v := int64(max(0, d)) + 1
	for old := i.Load(); old < v && !i.CompareAndSwap(old, v); old = i.Load() {
	}
}

// earliest moves the instant back, never forward.
func (i *instant) earliest(d time.Duration) {
	v := int64(max(0, d)) + 1
	for old := i.Load(); (old == 0 || v < old) && !i.CompareAndSwap(old, v); old = i.Load() {
	}
}
