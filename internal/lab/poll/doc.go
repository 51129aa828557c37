// Package poll has few goroutines wait for many sockets, as Envoy's threads do: a simulated
// client then takes little more than the kernel's part of a read and a write. There are Loops
// on Linux only.
package poll

import "errors"

// ErrUnsupported tells that a connection cannot be waited for so: its owner reads it itself.
var ErrUnsupported = errors.New("only TCP connections on Linux can be waited for in a loop")

// Handler is who owns a Conn. Its method is called in the loop's goroutine, and must not wait.
type Handler interface {
	// Ready is called when there are bytes to read, or the end (gone: both sides are over).
	// buf is for what is read, until Ready returns. false has Serve return.
	Ready(c *Conn, buf []byte, gone bool) bool
}
