//go:build !linux

package poll

import "net"

// Loops is not there on this system.
type Loops struct{}

// Loop is one of Loops.
type Loop struct{}

// Conn is what a loop would wait for.
type Conn struct{ net.Conn }

// Close does nothing.
func (*Conn) Close() {}

// Start gives nil.
func Start() *Loops { return nil }

// Next gives none.
func (*Loops) Next() *Loop { return nil }

// Stop does nothing.
func (*Loops) Stop() {}

// Take always fails.
func Take(net.Conn) (*Conn, error) { return nil, ErrUnsupported }

// Serve always fails.
func (*Conn) Serve(*Loop, Handler) error { return ErrUnsupported }

// End does nothing.
func (*Conn) End() {}
