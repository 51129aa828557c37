package http2

import (
	"net"
	"syscall"

	"github.com/moonsail/moonsail/internal/xds/epoll"
)

// loops are the goroutines, one for each CPU, that wait for connections at rest.
type (
	loops = epoll.Loops[conn]
	loop  = epoll.Loop[conn]
)

// Events of epoll. Each is told of once.
const (
	readable  = syscall.EPOLLIN
	writable  = syscall.EPOLLOUT
	ending    = syscall.EPOLLRDHUP | syscall.EPOLLHUP | syscall.EPOLLERR
	onChanges = 1 << 31 // EPOLLET, which package syscall has as a negative number
)

// startLoops gives nil where there can be none: connections have their goroutines then. yield is Options.Yield.
func startLoops(yield func()) *loops {
	return epoll.Start(func(l *loop) {
		for l.Wait() {
			yield()
			l.Each((*conn).event)
		}
	})
}

// event is called in the loop.
func (c *conn) event(events uint32) {
	s := c.socket
	if events&writable != 0 && s.polled.full.Load() {
		s.flushOn()
	}
	if events&ending != 0 {
		s.polled.over.Store(true)
		if end := s.polled.gone.Load(); end != nil {
			(*end)()
		}
	}
	if events&(readable|ending) != 0 && s.polled.wake() {
		c.turn()
	}
}

// hand has a loop wait for the connection from now on, where it is one of plain TCP and nothing fails: else it
// goes on as it is. Its goroutine must be the only one to read.
func (c *conn) hand(ls *loops) {
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
		_ = syscall.Close(fd) // there is another one
		return
	}
	s.Conn.Close() // the runtime is to know nothing of it any more
}

// shut ends one side or both.
func (p *polled) shut(how int) error {
	if p.fd < 0 {
		return net.ErrClosed
	}
	return syscall.Shutdown(p.fd, how)
}

func (p *polled) close() {
	p.loop.Drop(p.fd)
	_ = syscall.Close(p.fd) // there is nobody to tell
	p.fd = -1
}
