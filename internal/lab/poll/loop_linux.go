package poll

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Loops are some goroutines that wait for sockets.
type Loops struct {
	all   []*Loop
	next  atomic.Uint64
	ended sync.WaitGroup
}

// Loop is one of them: each is a thread while it waits.
type Loop struct {
	epoll, stop int    // stop is an eventfd
	buf         []byte // that its conns read into

	mu    sync.Mutex // guards conns
	conns []*Conn    // by descriptor
}

const (
	bufferSize = 64 << 10
	atOnce     = 256 // events that are taken together
)

// Start starts so many loops. Stop ends them.
func Start(n int) (*Loops, error) {
	ls := &Loops{}
	for range n {
		l, err := newLoop()
		if err != nil {
			ls.Stop()
			return nil, err
		}
		ls.all = append(ls.all, l)
		ls.ended.Go(l.run)
	}
	return ls, nil
}

func newLoop() (*Loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, err
	}
	l := &Loop{epoll: epoll, stop: stop, buf: make([]byte, bufferSize)}
	return l, l.control(unix.EPOLL_CTL_ADD, stop, unix.EPOLLIN)
}

// Next gives the loops in turn.
func (ls *Loops) Next() *Loop { return ls.all[ls.next.Add(1)%uint64(len(ls.all))] }

// Stop ends the loops, and with them every Serve. There must be no new ones.
func (ls *Loops) Stop() {
	for _, l := range ls.all {
		_, _ = unix.Write(l.stop, binary.NativeEndian.AppendUint64(nil, 1)) // it cannot be full
	}
	ls.ended.Wait()
}

func (l *Loop) control(op, fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}) //nolint:gosec // descriptors are small
}

func (l *Loop) add(c *Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.conns) <= c.fd {
		l.conns = append(l.conns, nil)
	}
	l.conns[c.fd], c.loop = c, l
	events := uint32(unix.EPOLLIN)
	if len(c.rest) > 0 { // of the loop before
		events |= unix.EPOLLOUT
	}
	err := l.control(unix.EPOLL_CTL_ADD, c.fd, events)
	if err != nil {
		l.conns[c.fd] = nil
	}
	return err
}

// drop lets go of a connection.
func (l *Loop) drop(c *Conn) {
	_ = l.control(unix.EPOLL_CTL_DEL, c.fd, 0) // it is there
	l.mu.Lock()
	l.conns[c.fd] = nil
	l.mu.Unlock()
	c.left <- struct{}{}
}

// run is the loop's goroutine.
func (l *Loop) run() {
	var ready [atOnce]*Conn
	events := make([]unix.EpollEvent, atOnce)
	for {
		n, err := unix.EpollWait(l.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil || !l.find(events[:max(n, 0)], ready[:]) {
			l.end()
			return
		}
		for i, c := range ready[:n] {
			l.serve(c, events[i].Events)
		}
	}
}

// find gives the connections of events; false: the loop is to stop.
func (l *Loop) find(events []unix.EpollEvent, into []*Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		if events[i].Fd == int32(l.stop) { //nolint:gosec // descriptors are small
			return false
		}
		into[i] = l.conns[events[i].Fd]
	}
	return true
}

func (l *Loop) serve(c *Conn, events uint32) {
	if events&unix.EPOLLOUT != 0 {
		c.writeRest()
	}
	if events&^unix.EPOLLOUT != 0 && !c.handler.Ready(c, l.buf, events&(unix.EPOLLHUP|unix.EPOLLERR) != 0) {
		l.drop(c)
	}
}

func (l *Loop) end() {
	l.mu.Lock()
	all := l.conns
	l.conns = nil
	l.mu.Unlock()
	for _, c := range all {
		if c != nil {
			c.left <- struct{}{}
		}
	}
	_, _ = unix.Close(l.epoll), unix.Close(l.stop)
}
