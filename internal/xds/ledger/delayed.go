package ledger

import (
	"iter"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Envoy holds back its answers about clusters while a cluster warms, for example until its name is resolved or its secrets
// arrive. (ClusterManagerImpl::updateClusterCounts pauses CDS, once Envoy has started.) It applies the responses that arrive
// meanwhile. When it has warmed all clusters, it answers a delta response each, in their order, and of state-of-the-world
// responses the last one.
//
// An answer that is late therefore does not hold up other resources: clusters are sent in further responses, and clusters
// that were sent count as those of a proxy that processes all messages in order.

// maxUnanswered bounds the unanswered responses of a type. If there are more, the two oldest become one.
const maxUnanswered = 64

// unanswered is a response before the one in flight.
type unanswered struct {
	*flight
	nonce uint64
	next  *unanswered // the response after it; nil: the one in flight
}

// Overdue records that the answer to the newest response of a type is late. Further responses may then be sent. It reports
// whether that is new. Only Envoy's answers about clusters may be late without Envoy being so, on a stream of everything.
func (l *Ledger) Overdue(t resource.Type) bool {
	w := &l.watches[cds]
	if kindsOf[t] != cds || l.asked || w.flight == nil || l.overdue == w.nonce {
		return false
	}
	l.overdue = w.nonce
	l.prefetch.dropUnrequested(cds, w.flight) // it had the time to request them
	return true
}

// isOverdue reports whether the answer to the response in flight is late.
func (st *streamState) isOverdue(w *watch) bool {
	return w.flight != nil && st.overdue >= w.nonce && w.typ == resource.Cluster
}

// waitsForAnswer reports whether nothing of a type is sent until a response is answered.
func (st *streamState) waitsForAnswer(w *watch) bool { return w.flight != nil && !st.isOverdue(w) }

// Withholds reports whether the proxy has processed clusters and holds back its answer, which is late: it answered a response
// that came after them.
func (st *streamState) Withholds() bool {
	w := &st.watches[cds]
	oldest := w.nonce
	if w.earlier != nil {
		oldest = w.earlier.nonce
	}
	return w.flight != nil && oldest <= min(st.overdue, st.answered)
}

// Unanswered yields the resources of a type that the proxy was sent, and whose response it has not answered.
func (st *streamState) Unanswered(t resource.Type) iter.Seq[*table.Entry] {
	return func(yield func(*table.Entry) bool) {
		k, ok := st.watchOf(t)
		if !ok {
			return
		}
		for f := range st.watches[k].unanswered() {
			for e := range f.entries() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// launch puts a response in flight.
func (w *watch) launch(f *flight, nonce uint64) {
	if w.flight != nil {
		w.postpone()
	}
	w.flight, w.nonce = f, nonce
}

// postpone moves the response in flight to those before it.
func (w *watch) postpone() {
	end, n := &w.earlier, 1
	for *end != nil {
		end, n = &(*end).next, n+1
	}
	*end = &unanswered{flight: w.flight, nonce: w.nonce}
	if n > maxUnanswered { // a refusal of the oldest one will be ignored
		second := w.earlier.next
		joined := second.own()
		joined.from, joined.explicit = w.earlier.from, w.earlier.explicit || second.explicit
		second.flight, w.earlier = joined, second
	}
}

// takeAnswered returns the response of a nonce, which is answered; nil: there is none. It accepts the responses before it.
func (l *Ledger) takeAnswered(k kind, nonce uint64) *flight {
	w := &l.watches[k]
	f := w.unansweredWith(nonce)
	if f == nil {
		return nil
	}
	for w.earlier != nil && w.earlier.nonce < nonce {
		before := w.earlier.flight
		w.earlier = w.earlier.next
		l.accept(k, before)
	}
	if w.earlier != nil {
		w.earlier = w.earlier.next
	} else {
		w.flight = nil
	}
	l.answered = max(l.answered, nonce)
	return f
}

// unansweredWith returns the unanswered response of a nonce; nil: there is none.
func (w *watch) unansweredWith(nonce uint64) *flight {
	if w.flight == nil || nonce == w.nonce {
		return w.flight
	}
	for u := w.earlier; u != nil; u = u.next {
		if u.nonce == nonce {
			return u.flight
		}
	}
	return nil
}

// unanswered yields the unanswered responses, the oldest first.
func (w *watch) unanswered() iter.Seq[*flight] {
	return func(yield func(*flight) bool) {
		for u := w.earlier; u != nil; u = u.next {
			if !yield(u.flight) {
				return
			}
		}
		if w.flight != nil {
			yield(w.flight)
		}
	}
}

// explicit reports whether an unanswered response has names of toSend, toRemove or groups.
func (w *watch) explicit() bool {
	for u := w.earlier; u != nil; u = u.next {
		if u.explicit {
			return true
		}
	}
	return w.flight != nil && w.flight.explicit
}

// explicitHas reports whether such a response contains or removes a name.
func (w *watch) explicitHas(name string) bool {
	for f := range w.unanswered() {
		if f.explicit && f.has(name) {
			return true
		}
	}
	return false
}

// unansweredSends reports whether an unanswered response contains a name.
func (w *watch) unansweredSends(name string) bool {
	for f := range w.unanswered() {
		if f.sends(name) {
			return true
		}
	}
	return false
}

// restart makes the unanswered responses begin at the cursor of table i, which is another one than theirs.
func (w *watch) restart(i int) {
	again := func(f *flight) *flight {
		f = f.own()
		f.from[i], f.explicit = w.at[i], true
		return f
	}
	for u := w.earlier; u != nil; u = u.next {
		u.flight = again(u.flight)
	}
	if w.flight != nil {
		w.flight = again(w.flight)
	}
}

// processed returns up to which revision the clusters of table i are processed when the proxy has processed what it was sent.
// Until its answer is late, the response in flight does not count, unless endpoints that follow it are known to be used.
func (st *streamState) processed(i int, trusted bool) model.Revision {
	c := &st.watches[cds]
	if c.flight == nil || st.isOverdue(c) || trusted && !c.flight.explicit {
		return c.at[i].add
	}
	return c.flight.from[i].add
}

// countProcessed makes late responses with clusters that the proxy has processed count as ACKed, until the returned function is
// called. A refusal of one comes later.
func (st *streamState) countProcessed() (end func()) {
	w := &st.watches[cds]
	processed := min(st.overdue, st.answered)
	if w.flight == nil || processed == 0 {
		return func() {}
	}
	flight, earlier := w.flight, w.earlier
	for w.earlier != nil && w.earlier.nonce <= processed {
		w.earlier = w.earlier.next
	}
	if w.nonce <= processed {
		w.flight = nil
	}
	return func() { w.flight, w.earlier = flight, earlier }
}

// countProcessedOf is countProcessed for the status of one resource. It has no effect on clusters that the proxy refused in
// another form, or whose names it may be resolving.
func (st *streamState) countProcessedOf(k kind, e *table.Entry) (end func()) {
	if k != cds || st.overdue == 0 || e == nil || st.watches[cds].held[e.Name] != nil || e.Resource().IsResolved() {
		return func() {}
	}
	return st.countProcessed()
}
