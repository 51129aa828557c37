package http2

import (
	"sync/atomic"
	"time"
)

// firstRequestTimer bounds how long an unauthenticated peer may take: from its handshake to its first complete
// message, and from the beginning of a stream to the stream's first complete message.
type firstRequestTimer struct {
	*conn

	// ends is the earliest end of these times, or before it, in Unix nanoseconds; 0: none is running.
	ends atomic.Int64

	// Guarded by conn.mu.
	first time.Time // end of the time for the connection's first message; zero: it has come
}

// begin starts the time of the connection.
func (p *firstRequestTimer) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = time.Now().Add(p.server.opts.FirstRequest)
	p.note(p.first)
}

// opened starts the time of a stream. conn.mu is held.
func (p *firstRequestTimer) opened(st *Stream) {
	if p.reader.unauthenticated {
		st.firstBy = time.Now().Add(p.server.opts.FirstRequest)
		p.note(st.firstBy)
	}
}

// note records an end for the lifetime goroutine. conn.mu is held.
func (p *firstRequestTimer) note(end time.Time) {
	if at := p.ends.Load(); !end.IsZero() && (at == 0 || end.UnixNano() < at) {
		p.ends.Store(end.UnixNano())
	}
}

// received records that a message of a stream is complete.
func (p *firstRequestTimer) received(st *Stream) {
	if p.ends.Load() == 0 {
		return
	}
	p.mu.Lock()
	p.first, st.firstBy = time.Time{}, time.Time{}
	p.mu.Unlock()
}

// trust ends all times.
func (p *firstRequestTimer) trust() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = time.Time{}
	for _, st := range p.streams {
		st.firstBy = time.Time{}
	}
	p.ends.Store(0)
}

// check cuts the connection if a time is over. The lifetime goroutine calls it, each tick.
func (p *firstRequestTimer) check(now time.Time) {
	if at := p.ends.Load(); at == 0 || now.UnixNano() < at {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends.Store(0)
	over := func(end time.Time) bool {
		p.note(end)
		return !end.IsZero() && !now.Before(end)
	}
	cut := over(p.first)
	for _, st := range p.streams {
		cut = over(st.firstBy) || cut
	}
	if cut {
		p.cut()
	}
}
