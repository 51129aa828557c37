//go:build !linux

package poll

import "net"

// Loops is not supported on this system.
type Loops struct{}

// Loop is one of Loops.
type Loop struct{}

// Conn is what a loop would wait for.
type Conn struct{ net.Conn }

// Close does nothing.
func (*Conn) Close() {}

// Start returns nil.
func Start() *Loops { return nil }

// Next returns nil.
func (*Loops) Next() *Loop { return nil }

// Stop does nothing.
func (*Loops) Stop() {}

// Take returns ErrUnsupported.
func Take(net.Conn) (*Conn, error) { return nil, ErrUnsupported }

// Serve returns ErrUnsupported.
func (*Conn) Serve(*Loop, Handler) error { return ErrUnsupported }

// End does nothing.
func (*Conn) End() {}
