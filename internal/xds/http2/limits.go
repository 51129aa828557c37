package http2

import (
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// Limits for peers. The first ones are announced in settings.
const (
	streamWindow  = 256 << 10 // bytes of a stream that are not acknowledged by a window update
	connWindow    = 1 << 20   // the same for a connection
	maxFrame      = 16 << 10  // of a frame's payload, in both directions: the size that every peer accepts
	maxStreams    = 100       // open at the same time on a connection
	maxHeaderList = 64 << 10  // as HTTP/2 counts: names, values and 32 for each
	maxBlock      = 4 * maxHeaderList
	firstWindow   = 65535 // HTTP/2's initial window
	maxWindow     = 1<<31 - 1
)

// Stricter limits for unauthenticated peers, with Options.LimitUnauthenticated.
const (
	unauthenticatedStreams = 10       // open at the same time on a connection
	unauthenticatedMessage = 64 << 10 // bytes of unfinished and kept messages, on all streams of a connection: a token and a certificate request need less
)

// A connection has a budget of frames that cost the server more than the peer: pings, settings,
// resets, empty DATA, new streams, small window updates. It refills over time, so that years of
// keep-alive do not exhaust it.
const (
	maxBudget    = 1000 // maximum
	budgetRefill = 200  // per second
	smallCredit  = 512  // bytes: a smaller WINDOW_UPDATE spends the budget
	maxControl   = 64 << 10
)

// Bounds in time.
const (
	defaultHandshake    = 10 * time.Second // until TLS, preface and settings are done
	defaultKeepalive    = 30 * time.Second // without a byte, until a ping
	defaultPingTimeout  = 20 * time.Second // without a byte after it, until the end
	defaultFirstRequest = 10 * time.Second // for the first message of an unauthenticated peer, and of each of its streams
	defaultFrameTime    = 20 * time.Second // for a header block, or another frame that is not DATA
	defaultMessageTime  = 5 * time.Minute  // for a message that does not arrive at once: see unfinished.go
	refusedTime         = 10 * time.Second // for the rest of a refused request
	lingerTime          = time.Second      // for reading what the peer sent before it learned of the end
	lingerBytes         = 1 << 20
	defaultTick         = time.Second
	sweep               = 4 // ticks, in which each connection is checked closely once
	defaultMaxMessage   = 32 << 20
)

// Trust lifts the stricter limits for unauthenticated peers. The Handler or the Receiver calls it,
// in the connection's goroutine.
func (st *Stream) Trust() {
	c := st.conn
	if !c.reader.unauthenticated {
		return
	}
	c.reader.unauthenticated = false
	c.authenticated()
	c.firstRequest.trust()
	// An error means that the connection is about to end.
	_ = c.output.sendControl(func(b []byte) []byte {
		return appendSettings(b, xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: maxStreams})
	})
}

// mostStreams returns how many streams the peer may have open.
func (fr *frameReader) mostStreams() uint32 {
	if fr.unauthenticated {
		return unauthenticatedStreams
	}
	return maxStreams
}

// checkUnfinished reports whether the unfinished messages of all streams are too large together.
// They count with their announced length, so that a message that is too large is refused before it
// arrives.
func (fr *frameReader) checkUnfinished() *Status {
	most, whose := fr.server.opts.MaxMessage, "a connection"
	if fr.unauthenticated {
		most, whose = min(most, unauthenticatedMessage), "an unauthenticated client"
	}
	if n := fr.unfinished(); n > most {
		return statusf(ResourceExhausted, "unfinished messages have %d bytes: the limit of %s is %d", n, whose, most)
	}
	return nil
}

// Keep records that the Receiver keeps n more bytes of its messages, until the stream ends. They
// count like unfinished messages. The Receiver must return the error. It is called in the
// connection's goroutine.
func (st *Stream) Keep(n int) error {
	st.kept += n
	s := st.conn.reader.checkUnfinished()
	if s == nil {
		s = st.conn.reader.incomplete(st)
	}
	if s != nil {
		return s
	}
	return nil
}

// unfinished returns the announced bytes of messages that are not complete, and the bytes that
// Receivers keep.
func (fr *frameReader) unfinished() (n int) {
	fr.mu.Lock()
	defer fr.mu.Unlock()
	for _, st := range fr.streams {
		n += st.kept
		if m := &st.message; m.n == prefixLen {
			n += m.size()
		}
	}
	return n
}
