package server

import "sync"

// sender brings changes to its share of the streams. A stream is in its queue at most
// once, so that the queue is bounded by the number of streams.
type sender struct {
	wake chan struct{} // capacity 1: there is something in the queue

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
		for i, st := range batch {
			st.advance()
			batch[i] = nil
		}
	}
}
