package http2

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/peeraddr"
)

// Bounds of unfinished and kept messages of all connections, in received bytes. 5000 proxies that connect again at once, over a
// link that serves all of them slowly, have 5000 unfinished messages. What a proxy lists takes 100 bytes for each resource: up to
// 2500 resources of a type count nothing, and 6500 fit. Each of these messages has 5 minutes (defaultMessageTime), which 90 Mbit/s
// suffice for. A proxy that is refused tries again. One host may have 4 of the largest messages.
const (
	freeUnfinished       = 256 << 10 // of each connection, that do not count
	unfinishedStep       = 64 << 10  // connections take and return as much at once
	defaultMaxUnfinished = 2 << 30
	unfinishedOfAddress  = 16 // an address may have this part of all
)

// unfinishedBytes counts bytes of unfinished messages.
type unfinishedBytes struct {
	most int // read-only

	mu  sync.Mutex // guards what follows
	all int
	of  map[netip.Addr]int
}

// take adds n bytes for a peer. It returns false, and adds nothing, if there are too many. Addresses of this host, such as those of
// port-forward, are limited only together with all others.
func (u *unfinishedBytes) take(peer net.Addr, n int) bool {
	ip := peeraddr.IP(peer.String())
	u.mu.Lock()
	defer u.mu.Unlock()
	shared := !ip.IsValid() || ip.IsLoopback()
	if u.all+n > u.most || !shared && u.of[ip]+n > u.most/unfinishedOfAddress {
		return false
	}
	u.all += n
	u.of[ip] += n
	return true
}

// give returns n bytes of a peer.
func (u *unfinishedBytes) give(peer net.Addr, n int) {
	ip := peeraddr.IP(peer.String())
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all -= n
	if u.of[ip] -= n; u.of[ip] == 0 {
		delete(u.of, ip)
	}
}

// incomplete records that more of a message was received or kept, and that the rest of the request is awaited. It starts the time of the message.
func (fr *frameReader) incomplete(st *Stream) *Status {
	n := st.kept
	if st.message.body != nil {
		n += len(*st.message.body)
	}
	fr.mu.Lock()
	defer fr.mu.Unlock()
	if !st.message.timed {
		st.message.timed = true
		st.messageBy = time.Now().Add(fr.server.opts.MessageTime).UnixNano()
		fr.noteSoonest(st)
	}
	if !fr.hold(st, n) {
		return statusf(ResourceExhausted, "unfinished messages of all clients, or of this one's address, have too many bytes: try again later")
	}
	return nil
}

// completed ends the time of a message, unless the Receiver keeps it for the rest of the request.
func (fr *frameReader) completed(st *Stream) {
	if !st.message.timed || st.kept > 0 {
		return
	}
	st.message.timed = false
	fr.mu.Lock()
	defer fr.mu.Unlock()
	st.messageBy = 0
	fr.hold(st, 0)
}

// hold records that the unfinished messages of a stream have n bytes. It returns false if all have too many. conn.mu is held.
func (c *conn) hold(st *Stream, n int) bool {
	if st.gone {
		n = 0
	}
	c.held += n - st.held
	st.held = n
	steps := (max(c.held-freeUnfinished, 0) + unfinishedStep - 1) / unfinishedStep
	switch more := steps*unfinishedStep - c.counted; {
	case more > 0:
		if !c.server.unfinished.take(c.socket.RemoteAddr(), more) {
			return false
		}
	case more < 0:
		c.server.unfinished.give(c.socket.RemoteAddr(), -more)
	}
	c.counted = steps * unfinishedStep
	return true
}

// overdue returns the status of a stream whose time is over.
func (c *conn) overdue(st *Stream, now time.Time) *Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.messageBy != 0 && now.UnixNano() >= st.messageBy {
		return statusf(DeadlineExceeded, "a message is not complete after %v: use a faster connection", c.server.opts.MessageTime)
	}
	return statusf(DeadlineExceeded, "the stream's grpc-timeout is over")
}
