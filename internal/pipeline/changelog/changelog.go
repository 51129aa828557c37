// Package changelog knows where the time goes: the change log, which follows each
// revision from its event to the last proxy's answer, and the metrics.
package changelog

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

var _ distribution.Observer = (*Log)(nil)

// Log follows the newest revisions; it is the server's Observer. It is a ring: a revision's place is its
// number, so that streams find it without a lock.
//
// The engine's goroutine calls Begin, Mark and Resources, in the order of revisions;
// the server calls Published, Sent and Settled, at any time and from anywhere; anybody reads.
type Log struct {
	// Read-only.
	log     *slog.Logger
	metrics *Metrics
	Tracers []Tracer    // set before the first change
	lines   chan Change // for Run; bounded, what does not fit is counted instead

	ring   []atomic.Pointer[record]
	newest atomic.Uint64 // the newest revision in the ring

	objects   objectIndex
	removals  removals
	followers followers
}

// DefaultChanges is how many changes a log remembers where nothing else is said.
const DefaultChanges = 1024

// pendingLines bounds the log lines that wait for Run.
const pendingLines = 256

// New makes a log of the newest size changes (DefaultChanges where size is 0).
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

// Begin starts the clock of a revision: observed is the first event of its batch.
func (l *Log) Begin(rev model.Revision, objects []ChangedObject, observed time.Time) {
	r := newRecord(rev, objects, observed)
	if len(l.Tracers) > 0 {
		r.witness = &witness{}
	}
	l.metrics.changed(objects)
	old := l.slot(rev).Swap(r)
	l.newest.Store(uint64(rev))
	size := model.Revision(len(l.ring))
	l.objects.note(rev, objects, observed, max(rev, size)-size)
	if old != nil && !old.distributed() {
		l.metrics.forgotten.Inc()
		l.tell(old) // some proxy never answered: say so before it is forgotten
		l.trace(old)
		l.followers.ended(old.rev)
	}
	l.followers.began(rev, objects)
}

// Mark ends a stage of the engine's: StageStore, StageDerive or StageTranslate.
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

// Resources adds n resources of so many encoded bytes to what a revision changed.
func (l *Log) Resources(rev model.Revision, n int, bytes int64) {
	if r := l.find(rev); r != nil {
		r.resources.Add(int64(n))
		r.bytes.Add(bytes)
	}
}

// Published says how many streams are bound to tables that a revision touched. With
// none it is distributed at once; so the engine calls it too where no table changed.
func (l *Log) Published(rev model.Revision, concerned int, at time.Time) {
	if r := l.find(rev); r != nil && r.publish(concerned, at) {
		l.finish(r)
	}
}

// Sent says that a response with a revision's resources is on its way to some proxy.
func (l *Log) Sent(rev model.Revision, at time.Time) {
	if r := l.find(rev); r != nil {
		r.ends[StageSend].earliest(at.Sub(r.observed))
	}
}

// Settled says how the revisions in (from, to] ended for one stream. Each of them that
// is in the log must have counted that stream when it was published.
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

// sentWith gives a revision that no response was sent for the time of the newer one
// whose response held it: latest wins, the older one was superseded while it waited.
func (r *record) sentWith(newer *record) {
	if newer == nil || r.ends[StageSend].get() >= 0 {
		return
	}
	if sent := newer.ends[StageSend].get(); sent >= 0 && r.ends[StageSend].first(newer.observed.Add(sent).Sub(r.observed)) {
		r.superseded.Store(true)
	}
}

// finish is called once for each revision, when its last stream has settled.
func (l *Log) finish(r *record) {
	l.metrics.distributed(r)
	l.tell(r)
	l.trace(r)
	l.followers.ended(r.rev)
}

// tell queues a revision's log line. It never blocks: streams call it.
func (l *Log) tell(r *record) {
	select {
	case l.lines <- r.snapshot():
	default:
		l.metrics.linesDropped.Inc()
	}
}

// Run writes log lines until ctx ends, and then what is left.
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

// Newest is the newest revision that has begun; 0 where there is none.
func (l *Log) Newest() model.Revision { return model.Revision(l.newest.Load()) }

// Change is what is known of a revision; false where the log has it no more, or not yet.
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
