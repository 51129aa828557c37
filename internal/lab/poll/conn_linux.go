package poll

import (
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/moonsail/moonsail/internal/xds/epoll"
)

// Conn is a TCP connection that a loop waits for.
type Conn struct {
	local   net.Addr
	handler Handler       // while it is served
	left    chan struct{} // capacity 1: the loop has removed it

	loop *Loop  // the loop's goroutine's
	rest []byte // bytes that the kernel has not accepted yet; also the loop's. The next loop continues with them

	mu sync.Mutex // guards fd against other goroutines
	fd int        // -1: closed
}

// Take takes over a connection: c is closed, and the new Conn continues it.
func Take(c net.Conn) (*Conn, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, ErrUnsupported
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, err := epoll.Duplicate(raw)
	if err != nil {
		return nil, err
	}
	local := c.LocalAddr()
	return &Conn{local: local, left: make(chan struct{}, 1), fd: fd}, c.Close()
}

// LocalAddr is the address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// Serve lets a loop call h until h returns false or the loops stop. Only one Serve may run at a time.
func (c *Conn) Serve(l *Loop, h Handler) error {
	c.handler, c.loop = h, l
	events := uint32(syscall.EPOLLIN)
	if len(c.rest) > 0 { // of the loop before
		events |= syscall.EPOLLOUT
	}
	if err := l.Add(c.fd, c, events); err != nil {
		return err
	}
	<-c.left
	return nil
}

// Read reads available bytes. It returns 0 if there are none.
func (c *Conn) Read(b []byte) (int, error) {
	for {
		switch n, err := epoll.Receive(c.fd, b); {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write accepts all of b. It may be called from Ready only. Bytes that the kernel does not accept at once are written
// later, while the Conn is served.
func (c *Conn) Write(b []byte) (int, error) {
	n := len(b)
	if len(c.rest) == 0 {
		left, err := c.write(b)
		if err != nil || len(left) == 0 {
			return n, err
		}
		c.rest = append(c.rest, left...)
		return n, c.loop.Modify(c.fd, syscall.EPOLLIN|syscall.EPOLLOUT)
	}
	c.rest = append(c.rest, b...)
	return n, nil
}

// write returns the bytes that the kernel does not accept.
func (c *Conn) write(b []byte) ([]byte, error) {
	for len(b) > 0 {
		n, err := epoll.Send(c.fd, b)
		switch err {
		case nil:
			b = b[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			return b, nil
		default:
			return nil, err
		}
	}
	return nil, nil
}

// writeRest is called when the kernel accepts bytes again. Reads report errors.
func (c *Conn) writeRest() {
	left, err := c.write(c.rest)
	c.rest = append(c.rest[:0], left...)
	if err == nil && len(left) > 0 {
		return
	}
	c.rest = nil
	_ = c.loop.Modify(c.fd, syscall.EPOLLIN)
}

// End ends both directions; Ready is called. It may be called from any goroutine at any time.
func (c *Conn) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		_ = syscall.Shutdown(c.fd, syscall.SHUT_RDWR) // it may have ended already
	}
}

// Close closes a connection that is not served.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		_ = syscall.Close(c.fd) // the error has no reader
		c.fd = -1
	}
}
