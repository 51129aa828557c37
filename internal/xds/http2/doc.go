// Package http2 is a gRPC server on HTTP/2 for long streams of small messages, made so
// that one more connection and one more message cost next to nothing.
//
// It knows nothing of discovery. A method is a Handler, which gives each stream a
// Receiver. Whoever reads a connection's frames hands messages to Receivers inline; their
// bytes are only lent. That is a goroutine of the connection's while it waits for the rest of
// something, or a Receiver may wait; between frames, few loops on epoll wait for all connections
// (on Linux, and TCP), and take small messages themselves. Sending never blocks: what the kernel
// or the peer's windows do not take stays queued with its stream, in order, and costs no
// goroutine.
//
// Frames are parsed by golang.org/x/net/http2's Framer, header blocks by its hpack, and
// DATA, which is nearly all there is, in place. An idle connection owns no buffer: those
// for reading and writing are pooled and held only while there is something in them. What
// is sent while requests that came together are worked on goes in one write.
//
// Locks: a stream's Send may be called with the caller's own locks held. Below these is
// conn.mu, and below that socket.mu. A Receiver is called without any.
package http2
