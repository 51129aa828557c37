package http2

import (
	"crypto/tls"
	"errors"
	"os"
)

// input is what a connection receives, decrypted. It belongs to the connection's reader.
type input struct {
	conn *conn
	tls  *tls.Conn // nil: plain text
	buf  *buffer   // nil while it waits for more
	r, w int

	quota int   // bytes that a header block may still take
	whole bool  // nothing of the next frame was read
	data  bool  // it is in a DATA frame
	err   error // why nothing more comes
}

// Read implements io.Reader, for the Framer.
func (in *input) Read(p []byte) (int, error) {
	b, err := in.take(len(p))
	if in.quota -= len(b); err == nil && in.quota < 0 {
		return 0, errFlood
	}
	return copy(p, b), err
}

// take returns up to n bytes, at least one, in place: they are valid until the next call.
func (in *input) take(n int) ([]byte, error) {
	if err := in.ready(); err != nil {
		return nil, err
	}
	n = min(n, in.w-in.r)
	in.r += n
	in.whole = false
	return in.buf[in.r-n : in.r], nil
}

// ready waits until there are bytes.
func (in *input) ready() error {
	if in.r < in.w {
		return nil
	}
	return in.fill()
}

// fill waits for bytes, after all were taken. If an event loop waits for the connection, it may
// return errIdle.
func (in *input) fill() (err error) {
	defer func() { in.err = err }()
	in.conn.reader.gather(nil)
	in.conn.output.cork(false)
	in.conn.beforeWait(in)
	if in.conn.inLoop {
		return errIdle
	}
	in.conn.busy.Store(false)
	defer in.conn.busy.Store(true)
	for {
		n, err := in.receive()
		if n > 0 {
			in.have(n)
			return nil
		}
		if err := in.without(err); err != nil {
			return err
		}
	}
}

// have records that n bytes were received.
func (in *input) have(n int) {
	in.r, in.w, in.err = 0, n, nil
	in.conn.output.cork(true)
	if !in.conn.active.Load() {
		in.conn.active.Store(true)
	}
}

// without handles that nothing was received. It returns nil if receive should be called again.
func (in *input) without(err error) error {
	switch {
	case isWake(err):
		return in.conn.handleWake()
	case !errors.Is(err, again{}):
		return err
	case in.whole:
		return errIdle
	}
	in.conn.socket.polled.pause()
	return nil
}

func isWake(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// receive reads what is there, or waits for it, like socket.get.
func (in *input) receive() (int, error) {
	s := in.conn.socket
	if in.tls == nil {
		return s.get(&in.buf)
	}
	for {
		if in.buf == nil {
			in.buf = buffers.Get().(*buffer)
		}
		n, err := in.tls.Read(in.buf[:])
		if n > 0 {
			return n, nil // the error is returned again by the next read
		}
		if !errors.Is(err, again{}) {
			return 0, err
		}
		giveBack(&in.buf)
		if err := s.receive(); err != nil {
			return 0, err
		}
	}
}

// release returns the buffers, at the end.
func (in *input) release() {
	giveBack(&in.buf)
	giveBack(&in.conn.socket.cipher)
	in.r, in.w = 0, 0
}
