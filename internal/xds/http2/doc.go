// Package http2 is a gRPC server on HTTP/2 for long streams of small messages, made so
// that one more connection and one more message cost next to nothing.
//
// It knows nothing of discovery. A method is a Handler, which gives each stream a
// Receiver. One goroutine a connection reads frames and hands messages to Receivers
// inline; their bytes are only lent. Sending never blocks: what the kernel or the peer's
// windows do not take stays queued with its stream, in order, and costs no goroutine
// unless the kernel is what it waits for.
//
// Frames are parsed by golang.org/x/net/http2's Framer, header blocks by its hpack, and
// DATA, which is nearly all there is, in place. An idle connection owns no buffer: those
// for reading and writing are pooled and held only while there is something in them. What
// is sent while requests that came together are worked on goes in one write.
//
// Locks: a stream's Send may be called with the caller's own locks held. Below these is
// conn.mu, and below that socket.mu. A Receiver is called without any.
package http2
