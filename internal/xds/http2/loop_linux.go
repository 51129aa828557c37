package http2

import (
	"net"
	"syscall"

	"github.com/moonsail/moonsail/internal/xds/epoll"
)

// loops are the goroutines, one for each CPU, that wait for idle connections.
type (
	loops = epoll.Loops[conn]
	loop  = epoll.Loop[conn]
)

// Events of epoll. Each event is reported once.
const (
	readable  = syscall.EPOLLIN
	writable  = syscall.EPOLLOUT
	ending    = syscall.EPOLLRDHUP | syscall.EPOLLHUP | syscall.EPOLLERR
	onChanges = 1 << 31 // EPOLLET, which package syscall declares as a negative number
)

// startLoops returns nil if loops cannot be started: each connection then has a goroutine. yield is
// Options.Yield.
func startLoops(yield func()) *loops {
	return epoll.Start(func(l *loop) {
		for l.Wait() {
			yield()
			l.Each(func(c *conn, events uint32) {
				c.handleEvent(events&writable != 0, events&readable != 0, events&ending != 0)
			})
		}
	})
}

// moveToLoop makes a loop wait for a connection on plain TCP from now on. If that fails, the connection
// keeps its goroutine. No other goroutine may read the connection.
func (c *conn) moveToLoop(ls *loops) {
	s := c.socket
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.Conn.(*net.TCPConn); ls == nil || !ok || s.raw == nil || s.flushing || s.err != nil {
		return
	}
	fd, err := epoll.Duplicate(s.raw)
	if err != nil {
		return
	}
	s.polled = &polled{fd: fd, loop: ls.Next()}
	if s.polled.loop.Add(fd, c, readable|writable|syscall.EPOLLRDHUP|onChanges) != nil {
		s.polled = nil
		_ = syscall.Close(fd) // the connection has another descriptor
		return
	}
	s.Conn.Close() // the runtime must not wait for it any more
}

// shut ends reading, writing or both.
func (p *polled) shut(how int) error {
	if p.fd < 0 {
		return net.ErrClosed
	}
	return syscall.Shutdown(p.fd, how)
}

func (p *polled) close() {
	p.loop.Drop(p.fd)
	_ = syscall.Close(p.fd) // an error has no consequence
	p.fd = -1
}
