package http2

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
)

// polled is a socket for which an event loop waits. Its reader is the loop, for a turn; or a
// goroutine, for work that a loop must not do. An idle connection has no reader.
type polled struct {
	loop   *loop
	state  atomic.Uint32 // of the reader: one of the constants below
	over   atomic.Bool   // the kernel has reported the end of the input: reading goes on until it is reached
	closed atomic.Bool
	full   atomic.Bool // there is something to write when the kernel accepts bytes again
	woken  atomic.Bool
	gone   atomic.Pointer[context.CancelFunc] // called when over is set; nil: no Receiver waits

	// The reader's.
	dry    bool          // the last read returned everything that had arrived
	signal chan struct{} // capacity 1: an event for a waiting goroutine; nil: no goroutine has waited yet

	fd int // changed by the reader with socket.mu held; negative: closed
}

// States of the reader. An event is reported once, so an event during a read must be recorded.
const (
	running  uint32 = iota
	notified        // it runs, and there was an event meanwhile
	waiting         // it is a goroutine that waits for the signal
	resting         // there is no reader
)

// wake notifies the reader of an event. If it returns true, there was no reader, and the caller is
// the reader from now on.
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

// Present returns a context for a Receiver that waits, which keeps its connection from being read.
// The context ends with the server, and, if event loops are in use, when the peer closes the
// connection. It must be canceled before Receive returns.
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

// leave ends reading. It returns false if there was an event, and the caller must read again.
func (p *polled) leave(to uint32) bool {
	p.dry = false
	if p.state.CompareAndSwap(running, to) {
		return true
	}
	p.state.Store(running)
	return false
}

// await is read, and waits for bytes.
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

// read reads what has arrived into *into, which it takes from the pool. If there is nothing, the
// error is again{}, and *into is nil. A wake is reported like an expired deadline.
func (p *polled) read(into **buffer) (int, error) {
	switch {
	case p.closed.Load():
		return 0, net.ErrClosed
	case p.woken.Swap(false):
		return 0, os.ErrDeadlineExceeded
	case p.dry && !p.over.Load():
		giveBack(into)
		return 0, again{}
	}
	if *into == nil {
		*into = buffers.Get().(*buffer)
	}
	n, none, err := readOnce(uintptr(p.fd), (*into)[:]) //nolint:gosec //nolint:gosec // it is not negative
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
