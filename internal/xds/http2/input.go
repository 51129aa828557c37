package http2

import (
	"crypto/tls"
	"errors"
	"os"
)

// input is what a connection receives, in clear. It belongs to the connection's goroutine.
type input struct {
	conn *conn
	tls  *tls.Conn // nil: plain text
	buf  *buffer   // nil while it waits for more
	r, w int

	quota int   // bytes that a header block may still take
	whole bool  // nothing of the next frame was read
	data  bool  // it is in a DATA frame
	err   error // why there is no more
}

// Read implements io.Reader, for the Framer.
func (in *input) Read(p []byte) (int, error) {
	b, err := in.take(len(p))
	if in.quota -= len(b); err == nil && in.quota < 0 {
		return 0, errFlood
	}
	return copy(p, b), err
}

// take gives up to n bytes, at least one of them, in place: they are valid until the next
// call.
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

// fill waits for bytes. Everything there was has been taken. Where a loop waits for the connection, it may come
// to rest here, with errRest.
func (in *input) fill() (err error) {
	defer func() { in.err = err }()
	in.conn.gather(nil)
	in.conn.cork(false)
	in.conn.waits(in)
	if in.conn.inLoop {
		return errRest
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

// have takes n bytes that were received.
func (in *input) have(n int) {
	in.r, in.w, in.err = 0, n, nil
	in.conn.cork(true)
	if !in.conn.active.Load() {
		in.conn.active.Store(true)
	}
}

// without does what is to be done where nothing was received; nil: it is to be tried again.
func (in *input) without(err error) error {
	switch {
	case isWake(err):
		return in.conn.handleWake()
	case !errors.Is(err, again{}):
		return err
	case in.whole:
		return errRest
	}
	in.conn.socket.polled.pause()
	return nil
}

func isWake(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// receive reads what there is, or waits for it, as socket.get does.
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
			return n, nil // an error comes again
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

// release gives the buffer back, at the end.
func (in *input) release() {
	giveBack(&in.buf)
	giveBack(&in.conn.socket.cipher)
	in.r, in.w = 0, 0
}
