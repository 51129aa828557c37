package http2

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// lifetime decides how long a connection lives: its age, its peer's certificate, keep-alive, and the
// steps of its end.
type lifetime struct {
	*conn

	// Read-only.
	phase uint32    // the lifetime goroutine's tick, in every sweep, in which the connection is checked closely
	old   time.Time // when the server starts to close the connection; zero: never

	// expires is when the peer's certificate expires, in Unix seconds, as nanoseconds end in 2262;
	// 0: the peer has no certificate.
	expires atomic.Int64

	// Guarded by conn.mu.
	leaving leaving
	parting *Status // with which the streams must end; nil: they may continue
	goneAt  uint32  // streams above it are refused after GOAWAY
	quiet   uint32  // sweeps without a byte
	pinged  bool    // during these
}

// leaving is how far a connection is on its way to its end. The peer receives two GOAWAYs. The first
// asks it to open no more streams. The answer to a ping shows that everything that it sent before has
// arrived; the second GOAWAY then announces the last stream.
type leaving uint8

const (
	staying        leaving = iota
	sentGoAway             // the first GOAWAY and the ping were sent
	sentLastGoAway         // the second GOAWAY was sent; the connection ends with its last stream
)

// gracePing is the ping between the two GOAWAYs; keepPing checks whether the peer is alive.
var (
	gracePing = [8]byte{'l', 'e', 'a', 'v', 'i', 'n', 'g'}
	keepPing  = [8]byte{'a', 'l', 'i', 'v', 'e'}
)

// check is called by the lifetime goroutine, each tick.
func (lt *lifetime) check(now time.Time, tick uint32) {
	if lt.endOfTime(now) {
		return
	}
	lt.firstRequest.check(now)
	if at := lt.soonest.Load(); at != 0 && now.UnixNano() >= at && lt.anyExpired(now) {
		lt.wake()
	}
	if tick%sweep == lt.phase {
		lt.checkClosely(tick)
	}
}

// checkClosely does what needs no exact time and costs more.
func (lt *lifetime) checkClosely(tick uint32) {
	lt.refill()
	if since := lt.behind.Load(); since != 0 && tick-since > lt.server.ticks(lt.server.opts.FrameTime, 1) {
		lt.cut()
		return
	}
	lt.keepAlive()
}

// ageSpread is the part of MaxAge by which the ages of connections differ, up and down, as in
// grpc-go. Connections that began together then do not all come back together.
const ageSpread = 0.1

// oldFrom returns when a connection that begins now must go away; zero: never.
func (o *Options) oldFrom(now time.Time) time.Time {
	if o.MaxAge <= 0 {
		return time.Time{}
	}
	spread := (2*rand.Float64() - 1) * ageSpread //nolint:gosec // need not be secret
	return now.Add(o.MaxAge + time.Duration(spread*float64(o.MaxAge)))
}

const (
	// expiryGrace is how long streams outlive their peer's certificate if MaxAgeGrace is zero.
	expiryGrace = 10 * time.Second
	// partingTime is how long a peer may take to receive the end of its streams, and Finishers to
	// answer, before the connection is cut.
	partingTime = time.Second
)

// Statuses of streams that end because the time of their connection is over.
var (
	aged   = &Status{Unavailable, "the connection is old: connect again"}
	lapsed = &Status{Unavailable, "the certificate has expired that the connection was made with: connect again"}
)

// noteExpiry records when the peer's certificate expires.
func (lt *lifetime) noteExpiry() {
	if certs := lt.tls.ConnectionState().PeerCertificates; len(certs) > 0 {
		lt.expires.Store(certs[0].NotAfter.Unix())
	}
}

// endOfTime handles connections that are old, or whose peer's certificate has expired. It reports
// whether it cut the connection.
func (lt *lifetime) endOfTime(now time.Time) bool {
	grace := lt.server.opts.MaxAgeGrace
	if !lt.old.IsZero() && lt.overdue(now.Sub(lt.old), grace, aged) {
		return true
	}
	at := lt.expires.Load()
	return at != 0 && lt.overdue(now.Sub(time.Unix(at, 0)), cmp.Or(grace, expiryGrace), lapsed)
}

// overdue ends a connection in steps. since is how long its time has been over. At first the peer
// must open no more streams. After the grace, unless that is zero, the streams end. Then the
// connection is cut, and overdue returns true.
func (lt *lifetime) overdue(since, grace time.Duration, status *Status) bool {
	if since <= 0 {
		return false
	}
	lt.goAway()
	if grace == 0 || since <= grace {
		return false
	}
	lt.dismiss(status)
	if since-grace <= partingTime {
		return false
	}
	lt.cut()
	return true
}

// refill adds to the budget of expensive frames.
func (lt *lifetime) refill() {
	if have := lt.budget.Load(); have < maxBudget {
		more := int32(max(1, sweep*budgetRefill*lt.server.opts.Tick/time.Second)) //nolint:gosec // some hundreds
		lt.budget.Add(min(more, maxBudget-have))
	}
}

// keepAlive pings an idle peer, and closes the connection of a peer that does not answer.
func (lt *lifetime) keepAlive() {
	o := &lt.server.opts
	lt.mu.Lock()
	defer lt.mu.Unlock()
	switch lt.quiet++; {
	case lt.active.Load() || lt.busy.Load():
		lt.active.Store(false)
		lt.quiet, lt.pinged = 0, false
	case !lt.pinged && lt.quiet >= lt.server.ticks(o.Keepalive, sweep):
		lt.quiet, lt.pinged = 0, true
		if lt.output.greeted {
			lt.output.control = appendPing(lt.output.control, 0, keepPing)
			lt.output.pump()
		}
	case lt.pinged && lt.quiet >= lt.server.ticks(o.PingTimeout, sweep):
		lt.cut()
	}
}

// goAway announces the end of the connection, with a GOAWAY and a ping. It cuts connections that
// have not begun.
func (lt *lifetime) goAway() {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if !lt.output.greeted {
		lt.cut()
	}
	if lt.leaving != staying {
		return
	}
	lt.leaving = sentGoAway
	lt.output.control = appendGoAway(lt.output.control, maxWindow, xhttp2.ErrCodeNo, "")
	lt.output.control = appendPing(lt.output.control, 0, gracePing)
	lt.output.pump()
}

// lastStream announces the last stream, after the peer answered the ping.
func (lt *lifetime) lastStream() error {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if lt.leaving != sentGoAway {
		return nil
	}
	lt.leaving, lt.goneAt = sentLastGoAway, lt.reader.lastID
	lt.output.control = appendGoAway(lt.output.control, lt.reader.lastID, xhttp2.ErrCodeNo, "")
	lt.output.pump()
	if len(lt.streams) == 0 {
		return errLeft
	}
	return nil
}

// dismiss makes all streams end with a status, and refuses new ones; nil: they may continue. The peer
// must have received a GOAWAY. Only the first status counts.
func (lt *lifetime) dismiss(status *Status) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if lt.parting != nil || status == nil {
		return
	}
	if lt.parting = status; lt.handshakeDone {
		lt.wake()
	}
}

// endDismissed ends the streams that dismiss was called for, in the connection's goroutine.
func (lt *lifetime) endDismissed() {
	lt.mu.Lock()
	status, all := lt.parting, slices.Clone(lt.streams)
	lt.mu.Unlock()
	if status == nil {
		return
	}
	for _, st := range all {
		if _, ok := st.receiver.(Finisher); st.receiver != nil && !ok {
			lt.finish(st, status)
		}
	}
}

// end ends the connection, in its goroutine.
func (c *conn) end(err error) {
	c.output.cork(false)
	c.endAll()
	if e := c.socket.failure(); errors.Is(e, errFlood) {
		err = e
	}
	c.logEnd(err)
	c.announceEnd(err)
	c.cut()
	c.reader.in.release()
	c.socket.release()
	c.server.left(c)
}

// logEnd logs why a connection ends. A peer's violation of the protocol is a warning, as it may be
// an attack.
func (c *conn) logEnd(err error) {
	peer := slog.Any("peer", c.socket.RemoteAddr())
	var ce xhttp2.ConnectionError
	switch {
	case c.closed.Load():
		c.server.opts.Log.Debug("connection was cut", peer)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errLeft), errors.Is(err, syscall.ECONNRESET):
		c.server.opts.Log.Debug("connection has ended", peer)
	case errors.As(err, &ce), errors.Is(err, xhttp2.ErrFrameTooLarge):
		c.server.opts.Log.Warn("connection ended: the peer violated the protocol", peer, "error", c.detail(err))
	default:
		c.server.opts.Log.Info("connection failed", peer, "error", err.Error())
	}
}

// announceEnd sends the reason for the end, if the peer still reads. It then reads and discards for a
// moment what the peer sends: with unread bytes the kernel would discard the reason.
func (c *conn) announceEnd(err error) {
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
		return // the peer has closed the connection
	}
	c.mu.Lock()
	if !c.output.greeted {
		c.mu.Unlock()
		return
	}
	if code != xhttp2.ErrCodeNo {
		c.output.control = appendGoAway(c.output.control, c.reader.lastID, code, c.detail(err))
	}
	c.output.pump()
	c.mu.Unlock()
	c.linger()
}

func (c *conn) detail(err error) string {
	if c.reader.framer != nil && c.reader.framer.ErrorDetail() != nil {
		err = c.reader.framer.ErrorDetail()
	}
	text := err.Error()
	return text[:min(len(text), 200)]
}

func (c *conn) linger() {
	if c.tls != nil {
		_ = c.tls.CloseWrite() // fails if the peer has closed the connection
	}
	if w, ok := c.socket.Conn.(interface{ CloseWrite() error }); !c.socket.shut(syscall.SHUT_WR) && (!ok || w.CloseWrite() != nil) {
		return
	}
	_ = c.socket.SetReadDeadline(time.Now().Add(lingerTime)) // has no effect with an event loop
	enough := time.AfterFunc(lingerTime, c.cut)
	defer enough.Stop()
	for n := 0; n < lingerBytes; {
		k, err := c.socket.await(&c.reader.in.buf)
		if err != nil {
			return
		}
		n += k
	}
}

// cut closes the connection at once. It may be called from any goroutine, more than once.
func (c *conn) cut() {
	if !c.closed.Swap(true) {
		_ = c.socket.Close() // an error has no consequence
	}
}
