package http2

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// buffer is what is read at once: a frame of the usual largest size. Whoever waits for a
// Receiver holds one.
type buffer [frameHead + maxFrame]byte

// buffers are lent to those who have something in them.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

func giveBack(b **buffer) {
	if *b != nil {
		buffers.Put(*b)
		*b = nil
	}
}

// socket is a connection that needs no buffer while it waits to read, and on which
// writing does not block: what the kernel does not take is kept, and a goroutine writes
// it that lives no longer than there is any. TLS, where there is any, writes to it and
// reads from it.
type socket struct {
	net.Conn
	raw syscall.RawConn // nil: reading needs a buffer, and every write its goroutine

	// The reader's.
	read    func(fd uintptr) bool // tryRead
	into    **buffer
	n       int
	readErr error
	cipher  *buffer // what TLS is to read
	cr, cw  int
	records tlsRecords
	waits   bool // Read waits, as the TLS handshake wants it

	polled *polled // nil: the runtime waits for it

	mu       sync.Mutex // guards what follows, and polled's descriptor
	write    func(fd uintptr) bool
	out      []byte // what write is to write
	writeErr error
	rest     []byte // what the kernel did not take
	flushing bool   // the goroutine lives
	err      error  // writing has ended
	flushed  func() // called without the lock when the kernel has taken everything
	flushers sync.WaitGroup
}

func newSocket(c net.Conn, flushed func()) *socket {
	s := &socket{Conn: c, flushed: flushed, waits: true}
	if sc, ok := c.(syscall.Conn); ok && nonBlocking {
		s.raw, _ = sc.SyscallConn() // without one the slower way works, too
	}
	s.read, s.write = s.tryRead, s.tryWrite
	return s
}

// get reads bytes as await does. Where a loop waits for them it does not: with none the error is again{}.
func (s *socket) get(into **buffer) (int, error) {
	if s.polled != nil {
		return s.polled.read(into)
	}
	return s.await(into)
}

// await waits for bytes and reads them into *into, which it takes from the pool. While it
// waits *into is nil.
func (s *socket) await(into **buffer) (int, error) {
	if s.polled != nil {
		return s.polled.await(into)
	}
	if s.raw == nil {
		if *into == nil {
			*into = buffers.Get().(*buffer)
		}
		return s.Conn.Read((*into)[:])
	}
	s.into = into
	if err := s.raw.Read(s.read); err != nil {
		return 0, err
	}
	if s.n == 0 && s.readErr == nil {
		return 0, io.EOF
	}
	return s.n, s.readErr
}

// tryRead always reads before it waits: the poller tells of an event once, and what came
// before it was asked is told by reading alone.
func (s *socket) tryRead(fd uintptr) bool {
	if *s.into == nil {
		*s.into = buffers.Get().(*buffer)
	}
	var again bool
	if s.n, again, s.readErr = readOnce(fd, (*s.into)[:]); again {
		giveBack(s.into)
	}
	return !again
}

// again is what TLS is told when there is nothing to read: it goes on where it was.
type again struct{}

func (again) Error() string   { return "nothing to read now" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true }

// Read implements net.Conn for TLS. It does not read beyond the end of a TLS record.
func (s *socket) Read(b []byte) (int, error) {
	for s.cr == s.cw {
		if !s.waits {
			return 0, again{}
		}
		if err := s.receive(); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.records.upToBoundary(s.cipher[s.cr:s.cw], len(b)))
	if s.cr += n; s.cr == s.cw {
		giveBack(&s.cipher)
	}
	return n, nil
}

// receive reads bytes for TLS, as get does.
func (s *socket) receive() (err error) {
	s.cr = 0
	s.cw, err = s.get(&s.cipher)
	return err
}

func (s *socket) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// Close ends reading and writing.
func (s *socket) Close() error {
	s.fail(net.ErrClosed)
	if !s.shut(syscall.SHUT_RDWR) {
		return s.Conn.Close()
	}
	return nil
}

// shut ends one side or both where a loop waits, else it is false. Both are told to the reader.
func (s *socket) shut(how int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polled == nil {
		return false
	}
	if how == syscall.SHUT_RDWR {
		s.polled.closed.Store(true)
	}
	_ = s.polled.shut(how) // it may have ended already
	return true
}

// release lets go of the descriptor, at the end.
func (s *socket) release() {
	s.flushers.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polled != nil {
		s.polled.close()
	}
}

// undeadline ends a deadline. A nudge that was told of is over by itself.
func (s *socket) undeadline() error {
	if s.polled != nil {
		return nil
	}
	return s.SetReadDeadline(time.Time{})
}
