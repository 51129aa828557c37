package server

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// transport sends a stream's messages. It is all that streams know of what carries them:
// grpc.go and http2.go are the two that there are.
type transport interface {
	// send may block if window bytes and more were sent that the peer has not
	// acknowledged by an answer, and then until the stream ends; else it does not.
	// Calls do not overlap. The messages go together, where the transport does that. Where it keeps nothing of them when it
	// returns, their heads, and lists of parts, may be used again.
	send(messages []message) (kept bool, err error)
	// window is at most how many bytes a stream takes without blocking; 0: it never
	// blocks, and queues what the peer does not take.
	window() int
	// pending is the number of messages that it has queued.
	pending() int
	// present ends when the stream or its connection has, with the server, or when it is canceled, which
	// it must be before the request that it is for is answered.
	present() (context.Context, context.CancelFunc)
	peer() string
	caller() *Peer
}

// sendMargin is for the framing of the messages that are counted.
const sendMargin = 1 << 10

// puller is a transport whose messages are asked for.
type puller interface {
	transport
	// receive gives the next message; free gives its bytes back.
	receive() (b []byte, free func(), err error)
}

// newStream begins a stream. Its requests are given to take, one after the other, and
// then end is called.
func (s *Server) newStream(p ledger.Protocol, port *Port, t transport) *stream {
	st := &stream{server: s, port: port, transport: t, protocol: p, connected: time.Now()}
	st.mu.then = st.catchUp
	st.inbox.published, st.account.pendingRevisions = st.inbox.room[:0], st.account.room[:0]
	return st
}

// pull handles one stream until it ends.
func (s *Server) pull(p ledger.Protocol, port *Port, t puller) error {
	st := s.newStream(p, port, t)
	defer st.end()
	for {
		b, free, err := t.receive()
		if errors.Is(err, io.EOF) {
			return nil // the peer has ended its side
		}
		if err != nil {
			return err
		}
		err = st.take(b)
		free()
		if err != nil {
			return err
		}
	}
}
