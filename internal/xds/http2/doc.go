// Package http2 is a gRPC server on HTTP/2 for long streams of small messages. Each additional
// connection and message costs little.
//
// The package does not know xDS. A method is a Handler, which returns a Receiver for each stream. The
// reader of a connection's frames passes messages to Receivers directly; their bytes are valid
// during the call. Event loops on epoll wait for all idle connections (on Linux, and TCP), and process
// small messages themselves. A connection has a goroutine while an incomplete frame is awaited, and
// while a Receiver may wait. Sending does not block: what the kernel or the peer's windows do not
// accept is queued with its stream, in order, and needs no goroutine.
//
// golang.org/x/net/http2's Framer parses frames, and its hpack header blocks. DATA frames, which are
// nearly all frames, are parsed in place. An idle connection owns no buffer: buffers for reading and
// writing are pooled, and held only while there is something in them. Responses to requests that
// arrived together go in one write.
//
//	server.go     the API: Handler, Receiver, BatchReceiver, Server
//	eventloop.go  idle connections: what an event loop reads, and when a goroutine takes over
//	reader.go     from bytes to messages: DATA frames, and the end of a batch of messages
//	headers.go    how a stream begins; frames.go has the other frames
//	output.go     what a connection sends, and how it is encoded
//	stream.go     a stream, and its queue
//	conn.go       a connection, and its handshake
//	lifetime.go   age, keep-alive and end of a connection
//	socket.go     non-blocking reads and writes, also below TLS
//	unfinished.go messages that are not complete: their time, and their bytes on all connections
//	limits.go     limits for peers, and stricter ones for unauthenticated peers, whose time is in
//	              firstrequest.go
//
// Locks: Stream.Send may be called with the caller's locks held. Below these is conn.mu, and below
// that socket.mu and unfinishedBytes.mu. Receivers are called without any.
package http2
