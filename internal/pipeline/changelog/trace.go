package changelog

import (
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Tracer receives each change once, at its end: when it is distributed, or when the log forgets it. Its
// methods must not block, since streams call them.
type Tracer interface{ Trace(Trace) }

// Trace is a change at its end, with the most informative answers of proxies.
type Trace struct {
	Change
	// Answers are the latest ACKs (at most maxSlowest), and the first refusals and ends of streams (at most
	// maxNotable), oldest first.
	Answers []Answer
}

// Answer is how a change ended for one proxy.
type Answer struct {
	Proxy   string // node id
	Name    string // name.namespace
	Outcome distribution.Outcome
	At      time.Time
	Text    string // the proxy's message, if it refused a resource
}

// Bounds of the answers that are kept of one change.
const (
	maxSlowest = 4
	maxNotable = 8
)

// answers keeps the most informative answers to one change.
type answers struct {
	mu      sync.Mutex // guards the fields
	slowest []Answer   // the latest ACKs, in no order
	notable []Answer   // the first refusals and ends of streams, oldest first
}

// RecordSettlement receives which proxy settled revisions, before Settled is called. It has an effect only with a
// Tracer.
func (l *Log) RecordSettlement(s distribution.Settlement) {
	if s.Outcome == distribution.NotConcerned {
		return
	}
	from := s.From
	if size := model.Revision(len(l.ring)); s.To > size {
		from = max(from, s.To-size)
	}
	a := Answer{Proxy: s.Proxy.ID, Name: s.Proxy.String(), Outcome: s.Outcome, At: s.At, Text: s.Text}
	for rev := s.To; rev > from; rev-- {
		if r := l.find(rev); r != nil && r.answers != nil {
			r.answers.add(a)
		}
	}
}

func (s *answers) add(a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.Outcome != distribution.ACKed:
		if len(s.notable) < maxNotable {
			s.notable = append(s.notable, a)
		}
	case len(s.slowest) < maxSlowest:
		s.slowest = append(s.slowest, a)
	default:
		s.replaceEarliest(a)
	}
}

// replaceEarliest replaces the earliest ACK by a later one.
func (s *answers) replaceEarliest(a Answer) {
	first := 0
	for i := range s.slowest {
		if s.slowest[i].At.Before(s.slowest[first].At) {
			first = i
		}
	}
	if s.slowest[first].At.Before(a.At) {
		s.slowest[first] = a
	}
}

// sorted returns all answers, oldest first.
func (s *answers) sorted() []Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Concat(s.slowest, s.notable)
	slices.SortStableFunc(out, func(a, b Answer) int { return a.At.Compare(b.At) })
	return out
}

// trace passes a change at its end to the Tracers.
func (l *Log) trace(r *record) {
	if r.answers == nil {
		return
	}
	t := Trace{Change: r.snapshot(), Answers: r.answers.sorted()}
	for _, tracer := range l.Tracers {
		tracer.Trace(t)
	}
}
