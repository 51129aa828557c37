package server

import (
	"time"

	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// unacked is a response that was not answered.
type unacked struct {
	bytes int
	since time.Time
}

// send sends the responses of a step: together, where the transport does. What could block is left to the waiter.
func (st *stream) send(responses []ledger.Response, now time.Time) {
	if len(responses) == 0 {
		return
	}
	a := assemble(st.protocol, responses)
	n, delivered := 0, uint16(0) // the first of them go now; bits: their types
	for i, m := range a.messages {
		blocks := st.waiter || st.blocks()
		st.sent(&responses[i], sizeOf(m), now)
		if blocks {
			st.leave(m) // and with it all that follow
			continue
		}
		n, delivered = n+1, delivered|1<<responses[i].Type
	}
	if n == 0 {
		return
	}
	kept, _ := st.transport.send(a.messages[:n]) // an error ends the stream, which its transport tells
	st.took(delivered, time.Since(now))
	if !kept && n == len(a.messages) {
		a.release()
	}
}

// sent notes a response that is decided on.
func (st *stream) sent(r *ledger.Response, bytes int, now time.Time) {
	st.server.opts.Meter.Pushed(r.Type, bytes, r.Whole)
	st.unacked[r.Type], st.flying = unacked{bytes: bytes, since: now}, st.flying|1<<r.Type
	st.account.newest = max(st.account.newest, r.Newest)
}

// took tells how long it took to send responses of some types: one write, which is over when the last is sent.
func (st *stream) took(types uint16, d time.Duration) {
	for t := range resource.NumTypes {
		if types&(1<<t) != 0 {
			st.server.opts.Meter.Took(t, d)
		}
	}
	st.server.opts.Meter.Delivered(d)
}

// leave leaves a message to the waiter.
func (st *stream) leave(m message) {
	st.backlog = append(st.backlog, m)
	if !st.waiter {
		st.waiter = true
		go st.drain()
	}
}

// blocks tells whether sending could block.
func (st *stream) blocks() bool {
	window := st.transport.window()
	if window == 0 {
		return false
	}
	outstanding := 0
	for t := range resource.NumTypes {
		outstanding += st.inFlight(t).bytes
	}
	return outstanding >= window-sendMargin
}

// inFlight is the response of a type that was not answered; zero: all were.
func (st *stream) inFlight(t resource.Type) unacked {
	if st.flying&(1<<t) == 0 {
		return unacked{}
	}
	return st.unacked[t]
}

// unread is the number of messages that wait for the proxy to read. The lock is held.
func (st *stream) unread() int {
	n := st.transport.pending()
	if st.waiter {
		n += len(st.backlog) + 1
	}
	return n
}

// drain sends the backlog. It ends when that is empty or the stream has ended.
func (st *stream) drain() {
	for {
		st.mu.Lock()
		if len(st.backlog) == 0 || st.closed {
			st.waiter, st.backlog = false, nil
			st.mu.Unlock()
			return
		}
		m := st.backlog[0]
		st.backlog = st.backlog[1:]
		st.mu.Unlock()
		began := time.Now()
		if _, err := st.transport.send([]message{m}); err != nil {
			return // waiter stays set: nothing more is sent
		}
		st.server.opts.Meter.Delivered(time.Since(began))
	}
}
