package http2

// Write takes all of b, and does not wait.
func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(b)
	if s.err != nil {
		return 0, s.err
	}
	if !s.flushing {
		if b = s.writeNow(b); s.err != nil {
			return 0, s.err
		}
		if len(b) == 0 {
			return n, nil
		}
		s.flushing = true
		if s.polled == nil {
			s.flushers.Go(s.flush)
		}
	}
	s.rest = append(s.rest, b...)
	return n, s.awaitRoom()
}

// awaitRoom has a loop flush the rest. It writes once more, as the kernel may have told meanwhile that it takes bytes,
// when nobody was to be told.
func (s *socket) awaitRoom() error {
	if p := s.polled; p != nil && !p.full.Swap(true) {
		s.rest = s.writeNow(s.rest)
		s.flushedAll()
	}
	return s.err
}

// flushedAll tells whether nothing is left to write, and ends flushing where that is so. The lock is held.
func (s *socket) flushedAll() bool {
	if len(s.rest) > 0 && s.err == nil {
		return false
	}
	s.rest, s.flushing = nil, false
	s.polled.full.Store(false)
	return true
}

// writeNow writes what the kernel takes at once, and gives the rest.
func (s *socket) writeNow(b []byte) []byte {
	if s.raw == nil {
		return b
	}
	s.out, s.writeErr = b, nil
	if p := s.polled; p != nil {
		s.tryWrite(uintptr(p.fd)) //nolint:gosec // a negative one is refused
		b, s.out, s.err = s.out, nil, s.writeErr
		return b
	}
	err := s.raw.Write(s.write)
	if err == nil {
		err = s.writeErr
	}
	b, s.out, s.err = s.out, nil, err
	return b
}

// tryWrite writes once more after a part was taken, and does not wait.
func (s *socket) tryWrite(fd uintptr) bool {
	for len(s.out) > 0 {
		n, again, err := writeOnce(fd, s.out)
		if s.writeErr = err; again || err != nil {
			break
		}
		s.out = s.out[n:]
	}
	return true
}

// blocked tells whether the kernel has yet to take something.
func (s *socket) blocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushing
}

// flush writes the rest. It ends when there is none.
func (s *socket) flush() {
	for {
		s.mu.Lock()
		b := s.rest
		s.rest = nil
		if len(b) == 0 || s.err != nil {
			s.flushing = false
			s.mu.Unlock()
			s.flushed()
			return
		}
		s.mu.Unlock()
		if err := s.writeAll(b); err != nil {
			s.fail(err)
		}
	}
}

// flushOn is called where a loop waits, when the kernel takes bytes again.
func (s *socket) flushOn() {
	s.mu.Lock()
	if !s.flushing {
		s.mu.Unlock()
		return
	}
	if s.err == nil {
		s.rest = s.writeNow(s.rest)
	}
	all := s.flushedAll()
	s.mu.Unlock()
	if all {
		s.flushed()
	}
}

// writeAll waits until all is written.
func (s *socket) writeAll(b []byte) error {
	if s.raw == nil {
		_, err := s.Conn.Write(b)
		return err
	}
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		for len(b) > 0 && failed == nil {
			n, again, err := writeOnce(fd, b)
			if again {
				return false
			}
			b, failed = b[n:], err
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}
