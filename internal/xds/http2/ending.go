package http2

import (
	"errors"
	"io"
	"log/slog"
	"syscall"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// depart ends the connection, in a goroutine.
func (c *conn) depart(err error) {
	c.cork(false)
	c.endAll()
	c.tell(err)
	c.part(err)
	c.cut()
	c.in.release()
	c.socket.release()
	c.server.left(c)
}

// tell logs why a connection ends, unless the peer went, or was told to. What a peer has
// done wrong is a warning, as it may be an attack; who is silent may be gone.
func (c *conn) tell(err error) {
	peer := slog.Any("peer", c.socket.RemoteAddr())
	var ce xhttp2.ConnectionError
	switch {
	case c.closed.Load():
		c.server.opts.Log.Debug("connection was cut", peer)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errLeft), errors.Is(err, syscall.ECONNRESET):
		c.server.opts.Log.Debug("connection has ended", peer)
	case errors.As(err, &ce), errors.Is(err, xhttp2.ErrFrameTooLarge):
		c.server.opts.Log.Warn("connection ended for what its peer did", peer, "error", c.detail(err))
	default:
		c.server.opts.Log.Info("connection failed", peer, "error", err.Error())
	}
}

// part says why a connection ends, where there is somebody to tell, and takes for a
// moment what the peer has sent meanwhile: unread it would have the kernel drop what we say.
func (c *conn) part(err error) {
	code := xhttp2.ErrCodeNo
	var ce xhttp2.ConnectionError
	switch {
	case errors.As(err, &ce):
		code = xhttp2.ErrCode(ce)
	case errors.Is(err, xhttp2.ErrFrameTooLarge):
		code = xhttp2.ErrCodeFrameSize
	case errors.Is(err, errPreface), errors.Is(err, errSilent):
		code = xhttp2.ErrCodeProtocol
	case !errors.Is(err, errLeft):
		return // there is nobody any more
	}
	c.mu.Lock()
	if !c.greeted {
		c.mu.Unlock()
		return
	}
	if code != xhttp2.ErrCodeNo {
		c.control = appendGoAway(c.control, c.lastID, code, c.detail(err))
	}
	c.pump()
	c.mu.Unlock()
	c.linger()
}

func (c *conn) detail(err error) string {
	if c.framer != nil && c.framer.ErrorDetail() != nil {
		err = c.framer.ErrorDetail()
	}
	text := err.Error()
	return text[:min(len(text), 200)]
}

func (c *conn) linger() {
	if c.tls != nil {
		_ = c.tls.CloseWrite() // as below: it may be gone
	}
	if w, ok := c.socket.Conn.(interface{ CloseWrite() error }); !c.socket.shut(syscall.SHUT_WR) && (!ok || w.CloseWrite() != nil) {
		return
	}
	_ = c.socket.SetReadDeadline(time.Now().Add(lingerTime)) // where a loop waits there is none
	enough := time.AfterFunc(lingerTime, c.cut)
	defer enough.Stop()
	for n := 0; n < lingerBytes; {
		k, err := c.socket.await(&c.in.buf)
		if err != nil {
			return
		}
		n += k
	}
}

// cut closes the connection at once. It may be called from anywhere, more than once.
func (c *conn) cut() {
	if !c.closed.Swap(true) {
		_ = c.socket.Close() // there is nobody to tell
	}
}
