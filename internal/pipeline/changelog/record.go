package changelog

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

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
	answers  *answers // nil: there is no Tracer

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
