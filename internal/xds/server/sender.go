package server

import (
	"sync"
	"sync/atomic"
)

// sender brings changes to its share of the streams. A stream is in its queue at most
// once, so that the queue is bounded by the number of streams.
type sender struct {
	wake chan struct{} // capacity 1: there is something in the queue

	batch atomic.Pointer[chan struct{}] // closed when the long batch that is being sent is; nil: none is

	mu    sync.Mutex // guards queue
	queue []*stream
}

func (s *sender) enqueue(st *stream) {
	s.mu.Lock()
	s.queue = append(s.queue, st)
	s.mu.Unlock()
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

// longBatch is the number of streams from which on a batch goes before what proxies say to it.
const longBatch = 64

func (s *sender) send(batch []*stream) {
	if len(batch) >= longBatch {
		done := make(chan struct{})
		s.batch.Store(&done)
		defer close(done)
		defer s.batch.Store(nil)
	}
	for i, st := range batch {
		st.advance()
		batch[i] = nil
	}
}

// yield waits for the long batches that are being sent, not for later ones: on few CPUs the last proxy would
// have its change later by all that is done for the ACKs of the first ones.
func (s *Server) yield() {
	for _, snd := range s.senders {
		if done := snd.batch.Load(); done != nil {
			<-*done
		}
	}
}
