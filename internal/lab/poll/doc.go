// Package poll waits for many sockets in a few goroutines, as Envoy's threads do. A simulated client then costs little more
// than the system calls for reads and writes. Only Linux has Loops.
package poll

import "errors"

// ErrUnsupported means that a loop cannot wait for a connection, so that its owner has to read it.
var ErrUnsupported = errors.New("only TCP connections on Linux can be waited for in a loop")

// Handler handles the events of a Conn. Its method is called in the loop's goroutine and must not block.
type Handler interface {
	// Ready is called when there are bytes or an end of file to read. gone means that both directions have ended. buf may
	// be used for reads until Ready returns. If Ready returns false, Serve returns.
	Ready(c *Conn, buf []byte, gone bool) bool
}
