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
	left    chan struct{} // capacity 1: the loop has let go of it

	loop *Loop  // the loop's goroutine's
	rest []byte // what the kernel has not taken yet; likewise. It stays where the loop lets go: the next one goes on

	mu sync.Mutex // guards fd against those who do not serve it
	fd int        // -1: it is closed
}

// Take takes a connection over: c is closed, and what it was goes on in the new one.
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

// Serve has a loop call h, until that says no or the loops are stopped. Only one Serve may run
// at a time.
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

// Read reads what there is, and gives 0 where nothing is.
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

// Write takes all of b, from Ready only. What the kernel does not take at once goes when it does, as long
// as the Conn is served.
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

// write gives what the kernel does not take.
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

// writeRest is called when the kernel takes bytes again. Errors are told by reading.
func (c *Conn) writeRest() {
	left, err := c.write(c.rest)
	c.rest = append(c.rest[:0], left...)
	if err == nil && len(left) > 0 {
		return
	}
	c.rest = nil
	_ = c.loop.Modify(c.fd, syscall.EPOLLIN)
}

// End has both sides end: Ready is told so. It may be called from anywhere, at any time.
func (c *Conn) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		_ = syscall.Shutdown(c.fd, syscall.SHUT_RDWR) // it may have ended already
	}
}

// Close closes the connection. It must not be served any more.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		_ = syscall.Close(c.fd) // there is nobody left to tell
		c.fd = -1
	}
}
