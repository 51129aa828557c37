package server

import (
	"time"

	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// unacked is a response that is not answered, or several of one type.
type unacked struct {
	bytes int
	since time.Time // when the first was sent
	last  time.Time // when the last was sent
}

// delivery sends the responses of a stream. Its fields are guarded by the stream's lock.
//
// A message that could block is left to a goroutine, which ends when the backlog is empty or the
// stream ends. Later messages queue up behind it, at most one for each type: further clusters wait until the proxy has read those
// before.
type delivery struct {
	*stream
	unanswered uint16                     // bits: the types of which a response is unanswered
	waiter     bool                       // the goroutine runs
	backlog    []message                  // at most one for each type
	unacked    [resource.NumTypes]unacked // meaningful for types in unanswered
}

var _ [16 - resource.NumTypes]struct{} // unanswered has a bit for each type

// send sends the responses of a step, in one write if the transport supports that. The goroutine
// sends what could block.
func (d *delivery) send(responses []ledger.Response, now time.Time) {
	if len(responses) == 0 {
		return
	}
	a := assemble(d.protocol, responses, d.naming())
	n, delivered := 0, uint16(0) // the first n go now; bits: their types
	for i, m := range a.messages {
		blocks := d.waiter || d.blocks()
		d.sent(&responses[i], sizeOf(m), now)
		if blocks {
			d.enqueue(m) // and all that follow
			continue
		}
		n, delivered = n+1, delivered|1<<responses[i].Type
	}
	if n == 0 {
		return
	}
	kept, _ := d.transport.send(a.messages[:n]) // an error ends the stream; the transport reports it
	d.meter(delivered, time.Since(now))
	if !kept && n == len(a.messages) {
		a.release()
	}
}

// clearAnswered records which responses were answered.
func (d *delivery) clearAnswered() {
	for t := range resource.NumTypes {
		if d.unanswered&(1<<t) != 0 && !d.ledger.InFlight(t) {
			d.setAnswered(t)
		}
	}
}

// sent records a response that is going to be sent.
func (d *delivery) sent(r *ledger.Response, bytes int, now time.Time) {
	d.server.opts.Meter.Pushed(r.Type, bytes, r.Whole)
	u := d.inFlight(r.Type)
	if u.since.IsZero() {
		u.since = now
		d.setUnanswered(r.Type)
	}
	u.bytes, u.last = u.bytes+bytes, now
	d.unacked[r.Type] = u
	d.pending.newest = max(d.pending.newest, r.Newest)
}

// setUnanswered records that a response of a type is unanswered. The server counts the streams with unanswered clusters.
func (d *delivery) setUnanswered(t resource.Type) {
	d.unanswered |= 1 << t
	if t == resource.Cluster {
		d.server.clustersUnanswered.Add(1)
	}
}

// setAnswered records that no response of a type is unanswered.
func (d *delivery) setAnswered(t resource.Type) {
	if t == resource.Cluster && d.unanswered&(1<<t) != 0 {
		d.server.clustersUnanswered.Add(-1)
	}
	d.unanswered &^= 1 << t
}

// meter reports how long a write took, for the types of its responses.
func (d *delivery) meter(types uint16, took time.Duration) {
	for t := range resource.NumTypes {
		if types&(1<<t) != 0 {
			d.server.opts.Meter.Took(t, took)
		}
	}
	d.server.opts.Meter.Delivered(took)
}

// enqueue leaves a message to the goroutine.
func (d *delivery) enqueue(m message) {
	d.backlog = append(d.backlog, m)
	if !d.waiter {
		d.waiter = true
		go d.drain()
	}
}

// blocks reports whether sending could block.
func (d *delivery) blocks() bool {
	window := d.transport.window()
	if window == 0 {
		return false
	}
	outstanding := 0
	for t := range resource.NumTypes {
		outstanding += d.inFlight(t).bytes
	}
	return outstanding >= window-sendMargin
}

// inFlight returns the unanswered response of a type; zero: there is none.
func (d *delivery) inFlight(t resource.Type) unacked {
	if d.unanswered&(1<<t) == 0 {
		return unacked{}
	}
	return d.unacked[t]
}

// unread returns the number of messages that the proxy has not read. The lock is held.
func (d *delivery) unread() int {
	n := d.transport.pending()
	if d.waiter {
		n += len(d.backlog) + 1
	}
	return n
}

// drain sends the backlog. It ends when the backlog is empty or the stream has ended.
func (d *delivery) drain() {
	for {
		d.mu.Lock()
		if len(d.backlog) == 0 || d.closed {
			d.waiter, d.backlog = false, nil
			d.mu.Unlock()
			return
		}
		m := d.backlog[0]
		d.backlog = d.backlog[1:]
		d.mu.Unlock()
		began := time.Now()
		if _, err := d.transport.send([]message{m}); err != nil {
			return // waiter stays set: nothing more is sent
		}
		d.server.opts.Meter.Delivered(time.Since(began))
	}
}
