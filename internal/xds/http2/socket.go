package http2

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// buffer is the buffer of one read: a frame of the usual largest size.
type buffer [frameHead + maxFrame]byte

// buffers is the pool of buffers. A connection holds one only while it has bytes in it.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

func giveBack(b **buffer) {
	if *b != nil {
		buffers.Put(*b)
		*b = nil
	}
}

// socket is a connection that needs no buffer while it waits for input, and on which writing does
// not block. What the kernel does not take is kept, and is written by an event loop or by a
// goroutine that ends when it is written. TLS, if it is used, writes to the socket and reads from
// it.
type socket struct {
	net.Conn
	raw syscall.RawConn // nil: reading needs a buffer, and every write a goroutine

	// The reader's.
	read    func(fd uintptr) bool // tryRead
	into    **buffer
	n       int
	readErr error
	cipher  *buffer // input of TLS
	cr, cw  int
	records tlsRecords
	waits   bool // Read waits, which the TLS handshake needs

	polled *polled // nil: the runtime waits for input

	mu       sync.Mutex // guards what follows, and polled's descriptor
	write    func(fd uintptr) bool
	out      []byte // input of write
	writeErr error
	rest     []byte // what the kernel did not take; bounded by maxUnwritten
	flushing bool   // an event loop or a goroutine writes rest
	err      error  // why writing has ended
	flushed  func() // called without the lock when the kernel has taken everything
	flushers sync.WaitGroup
}

func newSocket(c net.Conn, flushed func()) *socket {
	s := &socket{Conn: c, flushed: flushed, waits: true}
	if sc, ok := c.(syscall.Conn); ok && nonBlocking {
		s.raw, _ = sc.SyscallConn() // without it, reading needs a buffer
	}
	s.read, s.write = s.tryRead, s.tryWrite
	return s
}

// get reads bytes like await, but does not wait if an event loop does. Without bytes the error is
// then again{}.
func (s *socket) get(into **buffer) (int, error) {
	if s.polled != nil {
		return s.polled.read(into)
	}
	return s.await(into)
}

// await waits for bytes and reads them into *into, which it takes from the pool. While it waits,
// *into is nil.
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

// tryRead always reads before it waits. The poller reports an event once; bytes that arrived before
// are noticed only by reading.
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

// again is the error for TLS if there is nothing to read. A later read continues where this
// one stopped.
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

// receive reads bytes for TLS, like get.
func (s *socket) receive() (err error) {
	s.cr = 0
	s.cw, err = s.get(&s.cipher)
	return err
}

// maxUnwritten bounds what is written while the kernel does not take it. The frames of a connection wait for the kernel, so only the
// records of one write can follow each other. The answers of crypto/tls to key updates do not wait.
const maxUnwritten = maxControl + 2*len(writeBuffer{})

// abandon ends reading and writing, because the peer does not read what it causes. An error of Write is not enough: crypto/tls
// does not report that of an answer, and reads on. The lock is held.
func (s *socket) abandon() {
	s.err, s.rest = errFlood, nil
	if !s.shutLocked(syscall.SHUT_RDWR) {
		_ = s.Conn.Close() // an error has no consequence
	}
}

// failure returns why writing has ended; nil: it has not.
func (s *socket) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
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

// shut ends reading, writing or both, if an event loop waits for the socket; otherwise it returns
// false. The reader notices both.
func (s *socket) shut(how int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shutLocked(how)
}

// shutLocked is shut with the lock held.
func (s *socket) shutLocked(how int) bool {
	if s.polled == nil {
		return false
	}
	if how == syscall.SHUT_RDWR {
		s.polled.closed.Store(true)
	}
	_ = s.polled.shut(how) // it may have ended already
	return true
}

// release closes the descriptor, at the end.
func (s *socket) release() {
	s.flushers.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polled != nil {
		s.polled.close()
	}
}

// clearDeadline clears the read deadline. With an event loop there is none.
func (s *socket) clearDeadline() error {
	if s.polled != nil {
		return nil
	}
	return s.SetReadDeadline(time.Time{})
}

// Write takes all of b, and does not wait. It ends the connection if too much waits already.
func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(b)
	if s.err != nil {
		return 0, s.err
	}
	if !s.flushing {
		if b = s.writeNow(b); s.err != nil {
			return 0, s.err
		}
		if len(b) == 0 {
			return n, nil
		}
		s.flushing = true
		if s.polled == nil {
			s.flushers.Go(s.flush)
		}
	}
	if len(s.rest) > maxUnwritten {
		s.abandon()
		return 0, s.err
	}
	s.rest = append(s.rest, b...)
	return n, s.awaitRoom()
}

// awaitRoom makes an event loop write the rest. It writes once more itself, as the kernel may have
// reported room before full was set.
func (s *socket) awaitRoom() error {
	if p := s.polled; p != nil && !p.full.Swap(true) {
		s.rest = s.writeNow(s.rest)
		s.finishFlush()
	}
	return s.err
}

// finishFlush ends flushing if nothing is left to write. It reports whether that is so. The lock is
// held.
func (s *socket) finishFlush() bool {
	if len(s.rest) > 0 && s.err == nil {
		return false
	}
	s.rest, s.flushing = nil, false
	s.polled.full.Store(false)
	return true
}

// writeNow writes what the kernel takes at once, and returns the rest.
func (s *socket) writeNow(b []byte) []byte {
	if s.raw == nil {
		return b
	}
	s.out, s.writeErr = b, nil
	if p := s.polled; p != nil {
		s.tryWrite(uintptr(p.fd)) //nolint:gosec // a negative one is refused
		b, s.out, s.err = s.out, nil, s.writeErr
		return b
	}
	err := s.raw.Write(s.write)
	if err == nil {
		err = s.writeErr
	}
	b, s.out, s.err = s.out, nil, err
	return b
}

// tryWrite writes what the kernel takes, and does not wait.
func (s *socket) tryWrite(fd uintptr) bool {
	for len(s.out) > 0 {
		n, again, err := writeOnce(fd, s.out)
		if s.writeErr = err; again || err != nil {
			break
		}
		s.out = s.out[n:]
	}
	return true
}

// blocked reports whether the kernel has not taken everything.
func (s *socket) blocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushing
}

// flush writes the rest, in a goroutine. It ends when there is none.
func (s *socket) flush() {
	for {
		s.mu.Lock()
		b := s.rest
		s.rest = nil
		if len(b) == 0 || s.err != nil {
			s.flushing = false
			s.mu.Unlock()
			s.flushed()
			return
		}
		s.mu.Unlock()
		if err := s.writeAll(b); err != nil {
			s.fail(err)
		}
	}
}

// flushMore writes the rest in an event loop, when the kernel takes bytes again.
func (s *socket) flushMore() {
	s.mu.Lock()
	if !s.flushing {
		s.mu.Unlock()
		return
	}
	if s.err == nil {
		s.rest = s.writeNow(s.rest)
	}
	all := s.finishFlush()
	s.mu.Unlock()
	if all {
		s.flushed()
	}
}

// writeAll waits until everything is written.
func (s *socket) writeAll(b []byte) error {
	if s.raw == nil {
		_, err := s.Conn.Write(b)
		return err
	}
	var failed error
	err := s.raw.Write(func(fd uintptr) bool {
		for len(b) > 0 && failed == nil {
			n, again, err := writeOnce(fd, b)
			if again {
				return false
			}
			b, failed = b[n:], err
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}

const recordHeader = 5 // bytes: type, version and length of a TLS record

// tlsRecords finds the boundaries of TLS records in received ciphertext.
//
// A tls.Conn never frees its input buffer. The buffer doubles whenever a record is read
// behind bytes of the record before it. A tls.Conn that reads at most one record at a time
// keeps a buffer for its largest record and no more: at most 18 KB instead of 40.
type tlsRecords struct {
	header [recordHeader]byte
	n      int // bytes of header that were read
	left   int // bytes of the record that are still to be read
}

// upToBoundary returns the prefix of b, of at most limit bytes, that ends where a record
// header or a record ends at the latest. The caller must consume all of it.
func (r *tlsRecords) upToBoundary(b []byte, limit int) []byte {
	b = b[:min(len(b), limit)]
	if r.left > 0 {
		b = b[:min(len(b), r.left)]
		r.left -= len(b)
		return b
	}
	k := copy(r.header[r.n:], b)
	if r.n += k; r.n == recordHeader {
		r.n, r.left = 0, int(binary.BigEndian.Uint16(r.header[3:]))
	}
	return b[:k]
}
