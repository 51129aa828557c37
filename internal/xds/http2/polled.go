package http2

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
)

// polled is how a socket is read for which a loop waits. Its reader is the loop itself, for a turn; or a goroutine,
// for what a loop must not do; or, at rest, nobody.
type polled struct {
	loop   *loop
	state  atomic.Uint32 // of the reader: running and so on
	over   atomic.Bool   // the kernel has told of the end: reading goes on until it comes
	closed atomic.Bool
	full   atomic.Bool // something is to be written when the kernel takes bytes again
	nudged atomic.Bool
	gone   atomic.Pointer[context.CancelFunc] // called when over is set; nil: nobody waits for that

	// The reader's.
	dry    bool          // the last read took all that there was
	signal chan struct{} // capacity 1: an event for a goroutine that waits; nil: none did yet

	fd int // changed by the reader with socket.mu held; negative: it is closed
}

// What the reader does. An event is told to it once, so that one which comes while it runs has to be noted.
const (
	running  uint32 = iota
	notified        // it runs, and there was an event since it began to
	waiting         // it is a goroutine, and waits for the signal
	resting         // there is none
)

// wake tells the reader of an event; true: there was none, and the caller is it from now on.
func (p *polled) wake() bool {
	for {
		was, to := p.state.Load(), running
		switch was {
		case notified:
			return false
		case running:
			to = notified
		}
		if p.state.CompareAndSwap(was, to) {
			if was == waiting {
				p.signal <- struct{}{}
			}
			return was == resting
		}
	}
}

// Present is for a Receiver that waits, and so keeps its connection from being read: its context ends when the
// peer has closed the connection (where loops wait for it), or with the server. It must be canceled before Receive returns.
func (st *Stream) Present() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(st.Context())
	p := st.conn.socket.polled
	if p == nil {
		return ctx, cancel
	}
	p.gone.Store(&cancel)
	if p.over.Load() {
		cancel()
	}
	return ctx, func() { p.gone.Store(nil); cancel() }
}

// leave has the reader run no more; false: there was an event, and it is to read again.
func (p *polled) leave(to uint32) bool {
	p.dry = false
	if p.state.CompareAndSwap(running, to) {
		return true
	}
	p.state.Store(running)
	return false
}

// await is read that waits.
func (p *polled) await(into **buffer) (int, error) {
	for {
		n, err := p.read(into)
		if n > 0 || !errors.Is(err, again{}) {
			return n, err
		}
		p.pause()
	}
}

// pause waits for an event.
func (p *polled) pause() {
	if p.signal == nil {
		p.signal = make(chan struct{}, 1)
	}
	if p.leave(waiting) {
		<-p.signal
	}
}

// read reads what there is into *into, which it takes from the pool. Where nothing is, the error is again{}, and
// *into nil. A nudge is told like a deadline that is over.
func (p *polled) read(into **buffer) (int, error) {
	switch {
	case p.closed.Load():
		return 0, net.ErrClosed
	case p.nudged.Swap(false):
		return 0, os.ErrDeadlineExceeded
	case p.dry && !p.over.Load():
		giveBack(into)
		return 0, again{}
	}
	if *into == nil {
		*into = buffers.Get().(*buffer)
	}
	n, none, err := readOnce(uintptr(p.fd), (*into)[:]) //nolint:gosec // it is not negative
	switch {
	case none:
		giveBack(into)
		return 0, again{}
	case n == 0 && err == nil:
		return 0, io.EOF
	}
	p.dry = n < len(*into)
	return n, err
}
