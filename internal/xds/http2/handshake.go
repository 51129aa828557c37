package http2

import (
	"bytes"
	"fmt"
	"io"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// begin takes TLS's handshake, and HTTP/2's preface from both sides.
func (c *conn) begin() error {
	if err := c.socket.SetReadDeadline(time.Now().Add(c.server.opts.Handshake)); err != nil {
		return err
	}
	if c.tls != nil {
		if err := c.shakeHands(); err != nil {
			return err
		}
	}
	c.unauthenticated = c.server.opts.LimitUnauthenticated && (c.tls == nil || len(c.tls.ConnectionState().VerifiedChains) == 0)
	c.greet()
	if err := c.readPreface(); err != nil {
		return err
	}
	c.framer = newFramer(&c.in)
	if err := c.readSettings(); err != nil {
		return err
	}
	c.hand(c.server.loops)
	c.mu.Lock()
	c.agreed = true
	c.mu.Unlock()
	return c.handleWake() // to what nudges would have been for
}

// shakeHands takes TLS's handshake. What comes after it is read by input, which does not wait in TLS.
func (c *conn) shakeHands() error {
	if err := c.tls.HandshakeContext(c.server.ctx); err != nil {
		return err
	}
	if p := c.tls.ConnectionState().NegotiatedProtocol; p != "h2" {
		return fmt.Errorf("the peer does not offer HTTP/2 with ALPN, but %q", p)
	}
	c.socket.waits, c.in.tls = false, c.tls
	c.noteExpiry()
	return nil
}

// greet sends what every connection begins with.
func (c *conn) greet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.control = appendSettings(c.control,
		xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: c.mostStreams()},
		xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: streamWindow},
		xhttp2.Setting{ID: xhttp2.SettingMaxHeaderListSize, Val: maxHeaderList})
	c.control = appendWindowUpdate(c.control, 0, connWindow-firstWindow)
	c.greeted = true
	c.pump()
}

func (c *conn) readPreface() error {
	preface := make([]byte, len(xhttp2.ClientPreface))
	if _, err := io.ReadFull(&c.in, preface); err != nil {
		return err
	}
	if !bytes.Equal(preface, []byte(xhttp2.ClientPreface)) {
		return errPreface
	}
	return nil
}

func newFramer(from io.Reader) *xhttp2.Framer {
	f := xhttp2.NewFramer(nil, from)
	f.SetMaxReadFrameSize(maxFrame)
	f.SetReuseFrames()
	f.MaxHeaderListSize = maxHeaderList
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return f
}

// readSettings takes the frame that every peer begins with, behind its preface.
func (c *conn) readSettings() error {
	f, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	s, ok := f.(*xhttp2.SettingsFrame)
	if !ok || s.IsAck() {
		return xhttp2.ConnectionError(xhttp2.ErrCodeProtocol)
	}
	return c.settings(s)
}
