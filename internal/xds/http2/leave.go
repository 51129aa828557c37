package http2

import (
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// lookAfter is called by the keeper, each tick.
func (c *conn) lookAfter(now time.Time, tick uint32) {
	o := &c.server.opts
	c.refill()
	if since := c.behind.Load(); since != 0 && tick-since > c.server.ticks(o.FrameTime) {
		c.cut()
		return
	}
	if o.MaxAge > 0 {
		switch age := now.Sub(c.begun); {
		case o.MaxAgeGrace > 0 && age > o.MaxAge+o.MaxAgeGrace:
			c.cut()
			return
		case age > o.MaxAge:
			c.goAway()
		}
	}
	if len(c.expired(now)) > 0 {
		c.nudge()
	}
	c.keepAlive()
}

// refill gives the peer what it may bother us with.
func (c *conn) refill() {
	if have := c.budget.Load(); have < budgetMost {
		more := int32(max(1, budgetRefill*c.server.opts.Tick/time.Second)) //nolint:gosec // some hundreds
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
	case !c.pinged && c.quiet >= c.server.ticks(o.Keepalive):
		c.quiet, c.pinged = 0, true
		if c.greeted {
			c.control = appendPing(c.control, 0, keepPing)
			c.pump()
		}
	case c.pinged && c.quiet >= c.server.ticks(o.PingTimeout):
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
