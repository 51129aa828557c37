package http2

import xhttp2 "golang.org/x/net/http2"

// Trust lifts the stricter limits for unauthenticated peers. The Handler or the Receiver calls it,
// in the connection's goroutine.
func (st *Stream) Trust() {
	c := st.conn
	if !c.reader.unauthenticated {
		return
	}
	c.reader.unauthenticated = false
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
	if s := st.conn.reader.checkUnfinished(); s != nil {
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
