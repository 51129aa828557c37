package http2

import (
	"errors"
	"io"

	xhttp2 "golang.org/x/net/http2"
)

// readFrames takes frames until the connection ends, and says why.
func (c *conn) readFrames() error {
	for {
		c.in.whole, c.in.quota = true, maxBlock
		// Waiting here and not below the Framer keeps the stack of a connection at rest under
		// a quarter of 8 KB, so that a collection makes 4 KB of it.
		if err := c.in.ready(); err != nil {
			return err
		}
		fh, err := c.framer.ReadFrameHeader()
		if err == nil {
			if fh.Type == xhttp2.FrameData {
				err = c.data(fh)
			} else {
				err = c.frame(fh)
			}
		}
		var se xhttp2.StreamError
		switch {
		case err == nil:
		case errors.As(err, &se):
			if err := c.streamError(se); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// bother takes from the budget.
func (c *conn) bother() error {
	if c.budget.Add(-1) < 0 {
		return errFlood
	}
	return nil
}

func protocolError() error { return xhttp2.ConnectionError(xhttp2.ErrCodeProtocol) }

// frame takes a frame that is no DATA.
func (c *conn) frame(fh xhttp2.FrameHeader) error {
	f, err := c.framer.ReadFrameForHeader(fh)
	if err != nil {
		return c.refuseHeaders(fh, err)
	}
	switch f := f.(type) {
	case *xhttp2.MetaHeadersFrame:
		return c.headers(f)
	case *xhttp2.SettingsFrame:
		return c.moreSettings(f)
	case *xhttp2.PingFrame:
		return c.ping(f)
	case *xhttp2.WindowUpdateFrame:
		return c.windowUpdate(f)
	case *xhttp2.RSTStreamFrame:
		return c.reset(f)
	case *xhttp2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return xhttp2.StreamError{StreamID: f.StreamID, Code: xhttp2.ErrCodeProtocol}
		}
	case *xhttp2.PushPromiseFrame:
		return protocolError()
	}
	return c.bother()
}

// refuseHeaders sees to it that a stream whose header block is malformed has been, and is
// not taken for idle afterwards.
func (c *conn) refuseHeaders(fh xhttp2.FrameHeader, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) && c.in.err == nil {
		return protocolError() // its content ended, not the connection: it is shorter than its flags say
	}
	var se xhttp2.StreamError
	if fh.Type == xhttp2.FrameHeaders && errors.As(err, &se) {
		if fh.StreamID%2 == 0 {
			return protocolError()
		}
		c.lastID = max(c.lastID, fh.StreamID)
	}
	return err
}

// streamError resets a stream. Peers that cause many are not worth talking to.
func (c *conn) streamError(e xhttp2.StreamError) error {
	if err := c.bother(); err != nil {
		return err
	}
	if st := c.find(e.StreamID); st != nil {
		c.resetStream(st, e.Code)
		return nil
	}
	return c.say(func(b []byte) []byte { return appendReset(b, e.StreamID, e.Code) })
}

// say sends frames that go before all others.
func (c *conn) say(appendTo func([]byte) []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.control = appendTo(c.control)
	if len(c.control) > maxControl {
		return errFlood // it has us answer, and does not read the answers
	}
	c.pump()
	return nil
}

func (c *conn) moreSettings(f *xhttp2.SettingsFrame) error {
	if f.IsAck() {
		return c.bother()
	}
	if err := c.bother(); err != nil {
		return err
	}
	return c.settings(f)
}

// settings applies the peer's, in their order, and acknowledges them.
func (c *conn) settings(f *xhttp2.SettingsFrame) error {
	c.mu.Lock()
	err := f.ForeachSetting(c.setting)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.say(func(b []byte) []byte { return appendFrame(b, 0, xhttp2.FrameSettings, xhttp2.FlagSettingsAck, 0) })
}

// setting applies one. conn.mu is held.
func (c *conn) setting(s xhttp2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case xhttp2.SettingHeaderTableSize:
		c.resized = true
	case xhttp2.SettingMaxFrameSize:
		c.largest = min(int(s.Val), maxFrame)
	case xhttp2.SettingInitialWindowSize:
		grown := int(s.Val) - c.initial
		c.initial = int(s.Val)
		for _, st := range c.streams {
			if st.window += grown; st.window > maxWindow {
				return xhttp2.ConnectionError(xhttp2.ErrCodeFlowControl)
			}
			c.queue(st)
		}
	}
	return nil
}

func (c *conn) ping(f *xhttp2.PingFrame) error {
	if !f.IsAck() {
		if err := c.bother(); err != nil {
			return err
		}
		return c.say(func(b []byte) []byte { return appendPing(b, xhttp2.FlagPingAck, f.Data) })
	}
	if f.Data == gracePing {
		return c.lastStream()
	}
	if f.Data == keepPing {
		return nil
	}
	return c.bother()
}

func (c *conn) windowUpdate(f *xhttp2.WindowUpdateFrame) error {
	if f.Increment < smallCredit {
		if err := c.bother(); err != nil {
			return err
		}
	}
	if f.StreamID > c.lastID {
		return protocolError() // it is idle
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if c.window += int(f.Increment); c.window > maxWindow {
			return xhttp2.ConnectionError(xhttp2.ErrCodeFlowControl)
		}
		for _, st := range c.streams {
			c.queue(st)
		}
	} else if st := c.lookup(f.StreamID); st != nil {
		if st.window += int(f.Increment); st.window > maxWindow {
			return xhttp2.StreamError{StreamID: f.StreamID, Code: xhttp2.ErrCodeFlowControl}
		}
		c.queue(st)
	}
	c.pump()
	return nil
}

// reset takes the peer's end of a stream.
func (c *conn) reset(f *xhttp2.RSTStreamFrame) error {
	if f.StreamID > c.lastID {
		return protocolError() // it is idle
	}
	if err := c.bother(); err != nil {
		return err
	}
	if st := c.find(f.StreamID); st != nil {
		c.drop(st)
		st.end()
	}
	return nil
}
