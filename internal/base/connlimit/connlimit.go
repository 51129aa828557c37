// Package connlimit bounds connections: those of all clients, and those of each address, so that one host leaves room for others.
package connlimit

import (
	"net"
	"net/netip"
	"sync"

	"github.com/moonsail/moonsail/internal/base/peeraddr"
)

// Limits bound open connections.
type Limits struct {
	All       int
	OfAddress int
	// ExemptLoopback: connections from this machine count for All only.
	ExemptLoopback bool
	Refused        func() // called for each connection that is refused; nil: nothing
}

// Counter counts connections.
type Counter struct {
	limits Limits

	mu  sync.Mutex // guards the fields below
	all int
	of  map[netip.Addr]int
}

// New returns a Counter.
func New(limits Limits) *Counter { return &Counter{limits: limits, of: map[netip.Addr]int{}} }

// Enter counts a connection from an address until leave is called, which may be called more than once. It returns false if there is
// no room.
func (c *Counter) Enter(from net.Addr) (leave func(), ok bool) {
	ip := peeraddr.IP(from.String())
	if !c.add(ip) {
		if c.limits.Refused != nil {
			c.limits.Refused()
		}
		return nil, false
	}
	return sync.OnceFunc(func() { c.remove(ip) }), true
}

// Open returns the number of connections that are counted.
func (c *Counter) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

func (c *Counter) add(ip netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	exempt := c.limits.ExemptLoopback && ip.IsLoopback()
	if c.all >= c.limits.All || c.of[ip] >= c.limits.OfAddress && !exempt {
		return false
	}
	c.all++
	c.of[ip]++
	return true
}

func (c *Counter) remove(ip netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[ip]--; c.of[ip] == 0 {
		delete(c.of, ip)
	}
}

// Listen returns a listener that closes connections beyond the limits at once. A connection counts until it is closed.
func Listen(l net.Listener, limits Limits) net.Listener { return Admit(l, New(limits).Enter) }

// Admit returns a listener of *Conn. It closes connections at once that admit refuses.
func Admit(l net.Listener, admit func(from net.Addr) (leave func(), ok bool)) net.Listener {
	return &listener{l, admit}
}

type listener struct {
	net.Listener
	admit func(net.Addr) (leave func(), ok bool)
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave, ok := l.admit(c.RemoteAddr()); ok {
			return &Conn{c, leave}, nil
		}
		_ = c.Close() // it was not used
	}
}

// Conn counts until Leave is called, or until it is closed.
type Conn struct {
	net.Conn
	Leave func()
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.Leave()
	return c.Conn.Close()
}
