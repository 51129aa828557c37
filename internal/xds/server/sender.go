package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/base/defect"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// sender sends changes to its share of the streams. A stream is in its queue at most once (stream.queued), so
// the number of streams bounds the queue.
type sender struct {
	wake chan struct{} // capacity 1: the queue has streams

	batch atomic.Pointer[chan struct{}] // closed when the long batch in progress is sent; nil: there is none

	mu    sync.Mutex // guards queue
	queue []*stream
}

// enqueue adds a stream, unless it is in the queue. The inbox must have its news before.
func (s *sender) enqueue(st *stream) (added bool) {
	if !st.queued.CompareAndSwap(false, true) {
		return false
	}
	s.mu.Lock()
	s.queue = append(s.queue, st)
	s.mu.Unlock()
	return true
}

func (s *sender) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sender) run(stop <-chan struct{}) {
	var batch []*stream
	for {
		select {
		case <-stop:
			return
		case <-s.wake:
		}
		s.mu.Lock()
		batch, s.queue = s.queue, batch[:0]
		s.mu.Unlock()
		s.send(batch)
	}
}

// longBatch is the number of streams from which a batch is sent before proxies' answers are
// processed.
const longBatch = 64

func (s *sender) send(batch []*stream) {
	if len(batch) >= longBatch {
		done := make(chan struct{})
		s.batch.Store(&done)
		defer close(done)
		defer s.batch.Store(nil)
	}
	for i, st := range batch {
		st.queued.Store(false) // before advance reads the inbox: later news enqueue the stream again
		st.advance()
		batch[i] = nil
	}
}

// yield waits for the long batches that are in progress, not for later ones. On few CPUs the ACKs
// of the first proxies would otherwise delay the change for the last ones.
func (s *Server) yield() {
	for _, snd := range s.senders {
		if done := snd.batch.Load(); done != nil {
			<-*done
		}
	}
}

// inbox has the news for a stream. Its lock is held for a moment only, so that writers do not wait
// for the stream.
type inbox struct {
	mu        sync.Mutex // guards the fields
	published []model.Revision
	since     time.Time // of the oldest of published
	rebound   bool
	closed    bool
	asked     askedState        // of a stream on which the proxy asks for clusters
	room      [1]model.Revision // published begins in it, and is seldom longer
}

// handover is a lock that calls a function after it is released, if there is news.
type handover struct {
	sync.Mutex
	news atomic.Bool // the inbox has something; written with the inbox's lock held
	then func()      // read-only; called without the lock
}

// Unlock releases the lock.
func (h *handover) Unlock() {
	h.Mutex.Unlock()
	if h.news.Load() {
		h.then()
	}
}

// publish notifies a stream of a revision that it is counted for.
func (st *stream) publish(rev model.Revision, now time.Time) {
	in := &st.inbox
	in.mu.Lock()
	closed := in.closed
	if st.asked {
		in.asked.published = rev
	}
	if !closed {
		if len(in.published) == 0 {
			in.since = now
		}
		if !st.server.opts.DisableTracking && !st.asked {
			in.published = append(in.published, rev)
		}
		st.mu.news.Store(true)
	}
	in.mu.Unlock()
	if closed && st.asked {
		return
	}
	if defect.LostWakeup.On() && rev%4 == 0 {
		return
	}
	if closed {
		st.server.obs.Settled(rev-1, rev, distribution.Gone, now)
		return
	}
	st.sender.enqueue(st)
}

// rebind is the function that Binder.Bind receives.
func (st *stream) rebind(tables []*table.Table) {
	st.server.streams.rebind(st, st.visible(tables))
	in := &st.inbox
	in.mu.Lock()
	in.rebound = true
	closed := in.closed
	if !closed {
		st.mu.news.Store(true)
	}
	in.mu.Unlock()
	if !closed && st.sender.enqueue(st) {
		st.sender.kick()
	}
}
