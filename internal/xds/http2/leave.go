package http2

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// lookAfter is called by the keeper, each tick.
func (c *conn) lookAfter(now time.Time, tick uint32) {
	if c.endOfTime(now) {
		return
	}
	if at := c.soonest.Load(); at != 0 && now.UnixNano() >= at {
		c.wake()
	}
	if tick%sweep == c.phase {
		c.lookClosely(tick)
	}
}

// lookClosely does what need not be exact, and has more to look at.
func (c *conn) lookClosely(tick uint32) {
	c.refill()
	if since := c.behind.Load(); since != 0 && tick-since > c.server.ticks(c.server.opts.FrameTime, 1) {
		c.cut()
		return
	}
	c.keepAlive()
}

// ageSpread is the part of MaxAge by which connections differ at most, up and down, as in grpc-go: those that
// began together do not all come back together.
const ageSpread = 0.1

// oldFrom is when a connection that begins now is told to go away; zero: never.
func (o *Options) oldFrom(now time.Time) time.Time {
	if o.MaxAge <= 0 {
		return time.Time{}
	}
	spread := (2*rand.Float64() - 1) * ageSpread //nolint:gosec // nobody is to guess it, or not to
	return now.Add(o.MaxAge + time.Duration(spread*float64(o.MaxAge)))
}

const (
	// expiryGrace is how long streams outlive their peer's certificate where MaxAgeGrace says nothing.
	expiryGrace = 10 * time.Second
	// partingTime is what a peer has to take the end of its streams, and Finishers to answer, until the
	// connection is cut.
	partingTime = time.Second
)

// What streams end with whose connection's time is over.
var (
	aged   = &Status{Unavailable, "the connection is old: connect again"}
	lapsed = &Status{Unavailable, "the certificate has expired that the connection was made with: connect again"}
)

// noteExpiry notes until when the peer is whom it has shown to be.
func (c *conn) noteExpiry() {
	if certs := c.tls.ConnectionState().PeerCertificates; len(certs) > 0 {
		c.expires.Store(certs[0].NotAfter.Unix())
	}
}

// endOfTime looks after connections that are old, or whose peer's certificate has expired; true: it is cut.
func (c *conn) endOfTime(now time.Time) bool {
	grace := c.server.opts.MaxAgeGrace
	if !c.old.IsZero() && c.overdue(now.Sub(c.old), grace, aged) {
		return true
	}
	at := c.expires.Load()
	return at != 0 && c.overdue(now.Sub(time.Unix(at, 0)), cmp.Or(grace, expiryGrace), lapsed)
}

// overdue has a peer go whose time has been over for so long: it is told at first; after the grace, unless that
// is zero, its streams end; and then the connection is cut. true: it was.
func (c *conn) overdue(since, grace time.Duration, status *Status) bool {
	if since <= 0 {
		return false
	}
	c.goAway()
	if grace == 0 || since <= grace {
		return false
	}
	c.dismiss(status)
	if since-grace <= partingTime {
		return false
	}
	c.cut()
	return true
}

// refill gives the peer what it may bother us with.
func (c *conn) refill() {
	if have := c.budget.Load(); have < budgetMost {
		more := int32(max(1, sweep*budgetRefill*c.server.opts.Tick/time.Second)) //nolint:gosec // some hundreds
		c.budget.Add(min(more, budgetMost-have))
	}
}

// keepAlive pings a peer that says nothing, and closes the connection of one that does
// not answer.
func (c *conn) keepAlive() {
	o := &c.server.opts
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.quiet++; {
	case c.active.Load() || c.busy.Load():
		c.active.Store(false)
		c.quiet, c.pinged = 0, false
	case !c.pinged && c.quiet >= c.server.ticks(o.Keepalive, sweep):
		c.quiet, c.pinged = 0, true
		if c.greeted {
			c.control = appendPing(c.control, 0, keepPing)
			c.pump()
		}
	case c.pinged && c.quiet >= c.server.ticks(o.PingTimeout, sweep):
		c.cut()
	}
}

// goAway tells the peer to open no more streams, and to answer when it knows.
func (c *conn) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.greeted {
		c.cut() // it has not begun
	}
	if c.leaving != staying {
		return
	}
	c.leaving = warned
	c.control = appendGoAway(c.control, maxWindow, xhttp2.ErrCodeNo, "")
	c.control = appendPing(c.control, 0, gracePing)
	c.pump()
}

// lastStream tells the peer which stream was the last: it has answered.
func (c *conn) lastStream() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving != warned {
		return nil
	}
	c.leaving, c.goneAt = told, c.lastID
	c.control = appendGoAway(c.control, c.lastID, xhttp2.ErrCodeNo, "")
	c.pump()
	if len(c.streams) == 0 {
		return errLeft
	}
	return nil
}

// dismiss has all streams end with a status, and no others begin; nil: they may go on. The peer must
// have been told to go away. What was said first holds.
func (c *conn) dismiss(status *Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parting != nil || status == nil {
		return
	}
	if c.parting = status; c.agreed {
		c.wake()
	}
}

// dismissAll ends the streams that are to end, in the connection's goroutine.
func (c *conn) dismissAll() {
	c.mu.Lock()
	status, all := c.parting, slices.Clone(c.streams)
	c.mu.Unlock()
	if status == nil {
		return
	}
	for _, st := range all {
		if _, ok := st.receiver.(Finisher); st.receiver != nil && !ok {
			c.finish(st, status)
		}
	}
}
