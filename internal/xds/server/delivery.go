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

// send sends a response, or leaves it to the waiter where that could block. More tells that
// another follows.
func (st *stream) send(r *ledger.Response, now time.Time, more bool) {
	m := assemble(st.protocol, r)
	blocks := st.blocks()
	st.server.opts.Meter.Pushed(r.Type, m.size, r.Whole)
	st.unacked[r.Type], st.flying = unacked{bytes: m.size, since: now}, st.flying|1<<r.Type
	st.account.newest = max(st.account.newest, r.Newest)
	switch {
	case st.waiter:
		st.backlog = append(st.backlog, m)
	case !blocks:
		at, _ := st.deliver(m, more) // an error ends the stream, which its transport tells
		st.server.opts.Meter.Took(r.Type, at.Sub(now))
	default:
		st.backlog = append(st.backlog, m)
		st.waiter = true
		go st.drain()
	}
}

// deliver gives a message to the transport, which has it then.
func (st *stream) deliver(m message, more bool) (then time.Time, err error) {
	began := time.Now()
	err = st.transport.send(m, more)
	then = time.Now()
	st.server.opts.Meter.Delivered(then.Sub(began))
	return then, err
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
		if _, err := st.deliver(m, false); err != nil {
			return // waiter stays set: nothing more is sent
		}
	}
}
