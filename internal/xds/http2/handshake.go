package http2

import (
	"bytes"
	"fmt"
	"io"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// begin does the TLS handshake, and exchanges the HTTP/2 prefaces.
func (c *conn) begin() error {
	if err := c.socket.SetReadDeadline(time.Now().Add(c.server.opts.Handshake)); err != nil {
		return err
	}
	if c.tls != nil {
		if err := c.shakeHands(); err != nil {
			return err
		}
	}
	c.reader.unauthenticated = c.server.opts.LimitUnauthenticated && (c.tls == nil || len(c.tls.ConnectionState().VerifiedChains) == 0)
	c.output.greet()
	if err := c.reader.readPreface(); err != nil {
		return err
	}
	c.reader.framer = newFramer(&c.reader.in)
	if err := c.reader.readSettings(); err != nil {
		return err
	}
	c.hand(c.server.loops)
	c.mu.Lock()
	c.agreed = true
	c.mu.Unlock()
	return c.handleWake() // for what happened during the handshake
}

// shakeHands does the TLS handshake. What follows it is read by input, which does not wait in TLS.
func (c *conn) shakeHands() error {
	if err := c.tls.HandshakeContext(c.server.ctx); err != nil {
		return err
	}
	if p := c.tls.ConnectionState().NegotiatedProtocol; p != "h2" {
		return fmt.Errorf("the peer does not offer HTTP/2 with ALPN, but %q", p)
	}
	c.socket.waits, c.reader.in.tls = false, c.tls
	c.lifetime.noteExpiry()
	return nil
}

// readPreface reads the client's preface.
func (fr *frameReader) readPreface() error {
	preface := make([]byte, len(xhttp2.ClientPreface))
	if _, err := io.ReadFull(&fr.in, preface); err != nil {
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

// readSettings reads the first frame of the client, after its preface.
func (fr *frameReader) readSettings() error {
	f, err := fr.framer.ReadFrame()
	if err != nil {
		return err
	}
	s, ok := f.(*xhttp2.SettingsFrame)
	if !ok || s.IsAck() {
		return xhttp2.ConnectionError(xhttp2.ErrCodeProtocol)
	}
	return fr.settings(s)
}
