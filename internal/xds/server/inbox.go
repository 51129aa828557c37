package server

import (
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// inbox is what others have to tell a stream. Its lock is never held for long, so that
// no one waits for a stream.
type inbox struct {
	mu        sync.Mutex // guards the fields
	published []model.Revision
	since     time.Time // of the oldest of published
	rebound   bool
	queued    bool // the stream is in its sender's queue
	closed    bool
}

// waits tells whether something is there to be read.
func (in *inbox) waits() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.queued
}

// handover is a lock that calls a function each time it was given back.
type handover struct {
	sync.Mutex
	then func() // read-only; called without the lock
}

// Unlock gives the lock back.
func (h *handover) Unlock() {
	h.Mutex.Unlock()
	if h.then != nil {
		h.then()
	}
}

// publish tells a stream of a revision that it is counted for.
func (st *stream) publish(rev model.Revision, now time.Time) {
	in := &st.inbox
	in.mu.Lock()
	closed, queued := in.closed, in.queued
	if !closed {
		if len(in.published) == 0 {
			in.since = now
		}
		if !st.server.opts.Unfollowed {
			in.published = append(in.published, rev)
		}
		in.queued = true
	}
	in.mu.Unlock()
	switch {
	case closed:
		st.server.obs.Settled(rev-1, rev, Gone, now)
	case !queued:
		st.sender.enqueue(st)
	}
}

// rebind is given to the Binder.
func (st *stream) rebind(tables []*table.Table) {
	st.server.streams.rebind(st, tables)
	in := &st.inbox
	in.mu.Lock()
	in.rebound = true
	enqueue := !in.closed && !in.queued
	in.queued = in.queued || enqueue
	in.mu.Unlock()
	if enqueue {
		st.sender.enqueue(st)
		st.sender.kick()
	}
}
