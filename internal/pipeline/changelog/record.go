package changelog

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// numOutcomes is how many outcomes there are.
const numOutcomes = distribution.Gone + 1

// maxObjects bounds what a record remembers of a batch (the first load of a large mesh
// is one batch).
const maxObjects = 32

// record is one revision while it is on its way. Many streams settle it at once.
type record struct {
	// Read-only once the record is in the ring.
	rev      model.Revision
	objects  []ChangedObject // at most maxObjects
	count    int             // of all objects
	observed time.Time
	kinds    []kindSeen
	witness  *witness // nil: nobody traces

	// ends are the ends of the stages; published is when it was announced to streams.
	ends      [NumStages]instant
	published instant

	superseded atomic.Bool
	overtaken  atomic.Int64 // streams that ACKed it together with a newer one
	resources  atomic.Int64
	bytes      atomic.Int64
	concerned  atomic.Int64
	outcomes   [numOutcomes]atomic.Int64

	// open is how many streams have not settled. Until the revision is published it is
	// that minus unpublished streams' worth, since a stream may be faster than the
	// announcement. Whoever brings it to zero, once and for all, has distributed the change.
	open atomic.Int64
}

// unpublished keeps open above zero until Published takes it away again.
const unpublished = 1 << 40

// kindSeen is a kind among the objects and its first event.
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

// kindsOf lists the distinct kinds, each with its oldest event.
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

// publish announces the change to concerned streams and tells whether it is thereby distributed.
func (r *record) publish(concerned int, at time.Time) bool {
	if !r.published.first(at.Sub(r.observed)) {
		return false // published before: the first count stands
	}
	r.concerned.Store(int64(concerned))
	return r.open.Add(int64(concerned)-unpublished) == 0
}

// settle counts one stream's outcome and tells whether it was the last one.
func (r *record) settle(outcome distribution.Outcome, at time.Time) bool {
	if outcome == distribution.ACKed || outcome == distribution.NACKed {
		r.ends[StageAck].last(at.Sub(r.observed))
	}
	r.outcomes[outcome].Add(1)
	return r.open.Add(-1) == 0
}

// distributed tells whether all streams have settled.
func (r *record) distributed() bool { return r.open.Load() <= 0 }

func (r *record) timeline() Timeline {
	var t Timeline
	for i := range t {
		t[i] = r.ends[i].get()
	}
	return t
}

func (r *record) snapshot() Change {
	c := Change{
		Revision: r.rev, State: Building, Objects: r.objects, ObjectCount: r.count, Observed: r.observed,
		Superseded: r.superseded.Load(),
	}
	// The state is read before the counts: a change said to be distributed has all of them.
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

// instant is a time since the change's first event that many may set. Its zero value has not come.
type instant struct{ atomic.Int64 } // 0, or one more than the duration

// get is the duration, or never.
func (i *instant) get() time.Duration { return time.Duration(i.Load() - 1) }

// first sets it unless it is set, and tells whether it did.
func (i *instant) first(d time.Duration) bool {
	return i.Load() == 0 && i.CompareAndSwap(0, int64(max(0, d))+1)
}

// last moves it forward, never back.
func (i *instant) last(d time.Duration) {
	v := int64(max(0, d)) + 1
	for old := i.Load(); old < v && !i.CompareAndSwap(old, v); old = i.Load() {
	}
}

// earliest moves it back, never forward.
func (i *instant) earliest(d time.Duration) {
	v := int64(max(0, d)) + 1
	for old := i.Load(); (old == 0 || v < old) && !i.CompareAndSwap(old, v); old = i.Load() {
	}
}
