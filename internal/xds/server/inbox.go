package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// inbox is what others have to tell a stream. Its lock is never held for long, so that
// no one waits for a stream.
type inbox struct {
	mu        sync.Mutex // guards the fields
	published []model.Revision
	since     time.Time // of the oldest of published
	rebound   bool
	closed    bool
	room      [1]model.Revision // published begins in it, and is seldom longer
}

// handover is a lock that calls a function when it was given back and news wait.
type handover struct {
	sync.Mutex
	news atomic.Bool // something is in the inbox, and the stream in its sender's queue; written with the inbox's lock held
	then func()      // read-only; called without the lock
}

// Unlock gives the lock back.
func (h *handover) Unlock() {
	h.Mutex.Unlock()
	if h.news.Load() {
		h.then()
	}
}

// publish tells a stream of a revision that it is counted for.
func (st *stream) publish(rev model.Revision, now time.Time) {
	in := &st.inbox
	in.mu.Lock()
	closed, queued := in.closed, st.mu.news.Load()
	if !closed {
		if len(in.published) == 0 {
			in.since = now
		}
		if !st.server.opts.Unfollowed {
			in.published = append(in.published, rev)
		}
		st.mu.news.Store(true)
	}
	in.mu.Unlock()
	switch {
	case closed:
		st.server.obs.Settled(rev-1, rev, distribution.Gone, now)
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
	enqueue := !in.closed && !st.mu.news.Load()
	if enqueue {
		st.mu.news.Store(true)
	}
	in.mu.Unlock()
	if enqueue {
		st.sender.enqueue(st)
		st.sender.kick()
	}
}
