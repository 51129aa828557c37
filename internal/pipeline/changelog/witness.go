package changelog

import (
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Tracer is told of each change once, when nothing more will become of it: it is distributed,
// or the log forgets it. Its methods must not block: streams call them.
type Tracer interface{ Trace(Trace) }

// Trace is a change that is over, with those answers of proxies that tell most about it.
type Trace struct {
	Change
	// Answers are the latest ACKs, and refusals and ends of streams, oldest first; at most
	// maxSlowest and maxNotable.
	Answers []Answer
}

// Answer is how a change ended for one proxy.
type Answer struct {
	Proxy   string // its node id
	Name    string // name.namespace
	Outcome distribution.Outcome
	At      time.Time
	Text    string // the proxy's, where it refused something
}

// Bounds of the answers that are kept of one change.
const (
	maxSlowest = 4
	maxNotable = 8
)

// witness keeps the answers to one change that are worth it.
type witness struct {
	mu      sync.Mutex // guards the fields
	slowest []Answer   // ACKs, in no order
	notable []Answer   // refusals and ends of streams, oldest first
}

// Witness is told who settled what, before Settled is. It is worth asking for only with a Tracer.
func (l *Log) Witness(s distribution.Settlement) {
	if s.Outcome == distribution.NotConcerned {
		return
	}
	from := s.From
	if size := model.Revision(len(l.ring)); s.To > size {
		from = max(from, s.To-size)
	}
	a := Answer{Proxy: s.Proxy.ID, Name: s.Proxy.String(), Outcome: s.Outcome, At: s.At, Text: s.Text}
	for rev := s.To; rev > from; rev-- {
		if r := l.find(rev); r != nil && r.witness != nil {
			r.witness.add(a)
		}
	}
}

func (w *witness) add(a Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case a.Outcome != distribution.ACKed:
		if len(w.notable) < maxNotable {
			w.notable = append(w.notable, a)
		}
	case len(w.slowest) < maxSlowest:
		w.slowest = append(w.slowest, a)
	default:
		w.replace(a)
	}
}

// replace keeps an ACK instead of the earliest of those that are kept, if it is later.
func (w *witness) replace(a Answer) {
	first := 0
	for i := range w.slowest {
		if w.slowest[i].At.Before(w.slowest[first].At) {
			first = i
		}
	}
	if w.slowest[first].At.Before(a.At) {
		w.slowest[first] = a
	}
}

// answers are those that are kept, oldest first.
func (w *witness) answers() []Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := append(append([]Answer(nil), w.slowest...), w.notable...)
	slices.SortStableFunc(out, func(a, b Answer) int { return a.At.Compare(b.At) })
	return out
}

// trace hands a change that is over to those who want it.
func (l *Log) trace(r *record) {
	if r.witness == nil {
		return
	}
	t := Trace{Change: r.snapshot(), Answers: r.witness.answers()}
	for _, tracer := range l.Tracers {
		tracer.Trace(t)
	}
}
