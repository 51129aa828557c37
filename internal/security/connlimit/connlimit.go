// Package connlimit bounds the connections of a listener: of all clients, and of each address, so that one host leaves room for others.
package connlimit

import (
	"net"
	"sync"
)

// Limits bound open connections.
type Limits struct {
	All       int
	OfAddress int
	Refused   func() // called for each connection that is refused; nil: nothing
}

// Listen returns a listener that closes connections beyond the limits at once. A connection counts until it is closed.
func Listen(l net.Listener, limits Limits) net.Listener {
	return &listener{Listener: l, limits: limits, of: map[string]int{}}
}

type listener struct {
	net.Listener
	limits Limits

	mu  sync.Mutex // guards the fields below
	all int
	of  map[string]int // by address
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressOf(c.RemoteAddr())
		if l.add(address) {
			return &conn{Conn: c, done: func() { l.remove(address) }}, nil
		}
		_ = c.Close() // it was not used
		if l.limits.Refused != nil {
			l.limits.Refused()
		}
	}
}

func (l *listener) add(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.limits.All || l.of[address] >= l.limits.OfAddress {
		return false
	}
	l.all++
	l.of[address]++
	return true
}

func (l *listener) remove(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[address]--; l.of[address] == 0 {
		delete(l.of, address)
	}
}

// addressOf returns an address without its port.
func addressOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String() // of a Unix socket
	}
	return host
}

type conn struct {
	net.Conn
	once sync.Once
	done func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(c.done)
	return c.Conn.Close()
}
