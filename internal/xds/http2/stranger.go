package http2

import xhttp2 "golang.org/x/net/http2"

// Trust says that the connection's peer is known, and no stranger any more. It is called in the
// connection's goroutine: by the Handler, or by the Receiver.
func (st *Stream) Trust() {
	c := st.conn
	if !c.unauthenticated {
		return
	}
	c.unauthenticated = false
	// Where there is no room for it the connection is about to end.
	_ = c.say(func(b []byte) []byte {
		return appendSettings(b, xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: maxStreams})
	})
}

// mostStreams are how many streams the peer may have open.
func (c *conn) mostStreams() uint32 {
	if c.unauthenticated {
		return strangerStreams
	}
	return maxStreams
}

// checkUnfinished tells whether the messages that are under way on all streams are too much. They
// count as they were announced, so that what does not fit is refused before it comes.
func (c *conn) checkUnfinished() *Status {
	most, whose := c.server.opts.MaxMessage, "a connection"
	if c.unauthenticated {
		most, whose = min(most, strangerMessage), "a client that has not shown who it is"
	}
	if n := c.unfinished(); n > most {
		return statusf(ResourceExhausted, "the messages under way have %d bytes; %d is the limit of %s", n, most, whose)
	}
	return nil
}

// Keep says that the Receiver keeps n bytes more of what it was given, until the stream ends. They
// count as unfinished messages do, and the error is the Receiver's where that is too much. It is
// called in the connection's goroutine.
func (st *Stream) Keep(n int) error {
	st.kept += n
	if s := st.conn.checkUnfinished(); s != nil {
		return s
	}
	return nil
}

// unfinished are the bytes of messages that are not whole, as they were announced, and of those
// that Receivers keep.
func (c *conn) unfinished() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.streams {
		n += st.kept
		if m := &st.message; m.n == prefixLen {
			n += m.size()
		}
	}
	return n
}
