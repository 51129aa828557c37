package http2

import (
	"sync/atomic"
	"time"
)

// firstRequestTimer bounds how long an unauthenticated peer may take: from its handshake, and from the end of its last stream, to
// its next complete message, and from the beginning of a stream to the stream's first complete message. A call with one message
// must be complete. It also bounds how long the peer remains unauthenticated.
type firstRequestTimer struct {
	*conn

	// ends is the earliest end of these times, or before it, in Unix nanoseconds; 0: none is running.
	ends atomic.Int64

	// Guarded by conn.mu, in Unix nanoseconds. They are small, as each connection has them.
	first   int64 // end of the time for the connection's next message; 0: it has come
	leaveBy int64 // when the peer must go away; 0: it is authenticated
}

// An unauthenticated peer must go away after some times FirstRequest, which suffices for a certificate. Its calls in progress have
// a few more. A peer that is refused again and again then takes no place from others for long.
const (
	unauthenticatedAge   = 6
	unauthenticatedGrace = 3
)

// begin starts the time of the connection.
func (p *firstRequestTimer) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = p.after(1)
	p.leaveBy = p.after(unauthenticatedAge)
	p.note(p.first)
}

// after returns the time after some times FirstRequest.
func (p *firstRequestTimer) after(times time.Duration) int64 {
	return time.Now().Add(times * p.server.opts.FirstRequest).UnixNano()
}

// becameIdle starts the time of the connection again, after its last stream. conn.mu is held.
func (p *firstRequestTimer) becameIdle() {
	if p.leaveBy != 0 {
		p.first = p.after(1)
		p.note(p.first)
	}
}

// opened starts the time of a stream. conn.mu is held.
func (p *firstRequestTimer) opened(st *Stream) {
	if p.reader.unauthenticated {
		st.firstBy = p.after(1)
		p.note(st.firstBy)
	}
}

// note records an end for the lifetime goroutine. conn.mu is held.
func (p *firstRequestTimer) note(end int64) {
	if at := p.ends.Load(); at == 0 || end < at {
		p.ends.Store(end)
	}
}

// received records that a message of a stream is complete.
func (p *firstRequestTimer) received(st *Stream) {
	if p.ends.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = 0
	if _, call := st.receiver.(Finisher); !call { // else the stream's time ends with the request
		st.firstBy = 0
	}
}

// trust ends all times.
func (p *firstRequestTimer) trust() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first, p.leaveBy = 0, 0
	for _, st := range p.streams {
		st.firstBy = 0
	}
	p.ends.Store(0)
}

// check ends the connection if a time is over. The lifetime goroutine calls it, each tick.
func (p *firstRequestTimer) check(now time.Time) {
	if at := p.ends.Load(); at == 0 || now.UnixNano() < at {
		return
	}
	switch leave, cut := p.over(now.UnixNano()); {
	case cut:
		p.cut()
	case leave:
		p.lifetime.goAway()
	}
}

// over reports whether the peer must go away, and whether the connection must be cut. It records the next end.
func (p *firstRequestTimer) over(now int64) (leave, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var next int64 // received reads ends without the lock, so it is stored once
	over := func(end int64) bool {
		if end > now && (next == 0 || end < next) {
			next = end
		}
		return end != 0 && end <= now
	}
	if leave = over(p.leaveBy); leave {
		cut = over(p.leaveBy + int64(unauthenticatedGrace*p.server.opts.FirstRequest))
	}
	cut = over(p.first) || cut
	for _, st := range p.streams {
		cut = over(st.firstBy) || cut
	}
	p.ends.Store(next)
	return leave, cut
}
