package fleet

import (
	"net"
	"sync"

	"github.com/moonsail/moonsail/internal/lab/poll"
)

// socket is the connection of a stream, which a loop may take over.
type socket struct {
	over chan struct{} // closed by end

	mu     sync.Mutex // guards the fields below
	conn   net.Conn   // nil: polled has it
	polled *poll.Conn
	ended  bool
}

// take converts the connection to a loop's Conn; false: it stays as it is.
func (s *socket) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	polled, err := poll.Take(s.conn)
	if err != nil {
		return false
	}
	s.conn, s.polled = nil, polled
	return true
}

// end ends the stream and wakes its reader. It may be called from any goroutine.
func (s *socket) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.over)
	}
	if s.conn != nil {
		s.conn.Close()
	} else {
		s.polled.End()
	}
}

func (s *socket) address() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		return s.conn.LocalAddr()
	}
	return s.polled.LocalAddr()
}

// disconnect ends the current stream.
func (p *Proxy) disconnect() {
	if s := p.socket.Load(); s != nil {
		s.end()
	}
}

// Socket returns the address of the proxy's end of its newest stream.
func (p *Proxy) Socket() net.Addr {
	if s := p.socket.Load(); s != nil {
		return s.address()
	}
	return nil
}
