package http2

import (
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// loops are the goroutines, one for each CPU, that wait for connections at rest.
type loops struct {
	all   []*loop
	turn  atomic.Uint32
	ended sync.WaitGroup
}

// loop is one of them. It takes the events of an epoll, and waits for that in the runtime's own, so that no
// thread waits for it.
type loop struct {
	file  *os.File
	raw   syscall.RawConn
	yield func() // Options.Yield

	// The goroutine's.
	poll   func(epoll uintptr) bool // pollOnce
	events [atOnce]syscall.EpollEvent
	ready  [atOnce]*conn
	n      int
	err    error

	mu    sync.Mutex // guards conns
	conns []*conn    // by descriptor
}

// atOnce are the events that are taken together.
const atOnce = 128

// Events of epoll. Each is told of once.
const (
	readable  = syscall.EPOLLIN
	writable  = syscall.EPOLLOUT
	ending    = syscall.EPOLLRDHUP | syscall.EPOLLHUP | syscall.EPOLLERR
	onChanges = 1 << 31 // EPOLLET, which package syscall has as a negative number
)

// startLoops gives nil where there can be none: connections have their goroutines then.
func startLoops(yield func()) *loops {
	ls := &loops{}
	for range runtime.GOMAXPROCS(0) {
		l, err := newLoop()
		if err != nil {
			ls.stop()
			return nil
		}
		l.yield = yield
		ls.all = append(ls.all, l)
		ls.ended.Go(l.run)
	}
	return ls
}

func newLoop() (*loop, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // else the runtime would not wait for it
		_ = syscall.Close(fd)
		return nil, err
	}
	l := &loop{file: os.NewFile(uintptr(fd), "epoll")} //nolint:gosec // it is not negative
	l.poll = l.pollOnce
	l.raw, err = l.file.SyscallConn()
	if err == nil {
		err = l.file.SetReadDeadline(time.Time{}) // fails where the runtime cannot wait for it
	}
	if err != nil {
		l.file.Close()
	}
	return l, err
}

// stop ends the loops. Their connections must have ended.
func (ls *loops) stop() {
	if ls == nil {
		return
	}
	for _, l := range ls.all {
		l.file.Close()
	}
	ls.ended.Wait()
}

// run is the loop's goroutine.
func (l *loop) run() {
	for l.raw.Read(l.poll) == nil && l.err == nil {
		l.yield()
		l.find()
		for i, c := range l.ready[:l.n] {
			if c != nil {
				c.event(l.events[i].Events)
			}
		}
	}
}

// pollOnce takes events; false: there are none.
func (l *loop) pollOnce(epoll uintptr) bool {
	for {
		l.n, l.err = syscall.EpollWait(int(epoll), l.events[:], 0) //nolint:gosec // descriptors are small
		if l.err != syscall.EINTR {
			return l.n != 0
		}
	}
}

// find finds the connections of events. One that has another's descriptor by now has an event for nothing.
func (l *loop) find() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.n {
		l.ready[i] = l.conns[l.events[i].Fd]
	}
}

func (l *loop) add(c *conn, fd int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.conns) <= fd {
		l.conns = append(l.conns, nil)
	}
	l.conns[fd] = c
	err := l.control(syscall.EPOLL_CTL_ADD, fd, readable|writable|syscall.EPOLLRDHUP|onChanges)
	if err != nil {
		l.conns[fd] = nil
	}
	return err
}

func (l *loop) drop(fd int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.control(syscall.EPOLL_CTL_DEL, fd, 0) // it is there
	l.conns[fd] = nil
}

func (l *loop) control(op, fd int, events uint32) (err error) {
	closed := l.raw.Control(func(epoll uintptr) {
		err = syscall.EpollCtl(int(epoll), op, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)}) //nolint:gosec // descriptors are small
	})
	if closed != nil {
		return closed
	}
	return err
}

// event is called in the loop.
func (c *conn) event(events uint32) {
	s := c.socket
	if events&writable != 0 && s.polled.full.Load() {
		s.flushOn()
	}
	if events&ending != 0 {
		s.polled.over.Store(true)
	}
	if events&(readable|ending) != 0 && s.polled.wake() {
		c.turn()
	}
}

// hand has a loop wait for the connection from now on, where it is one of plain TCP and nothing fails: else it
// goes on as it is. Its goroutine must be the only one to read.
func (ls *loops) hand(c *conn) {
	s := c.socket
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.Conn.(*net.TCPConn); ls == nil || !ok || s.raw == nil || s.flushing || s.err != nil {
		return
	}
	fd, err := duplicate(s.raw)
	if err != nil {
		return
	}
	s.polled = &polled{fd: fd, loop: ls.all[ls.turn.Add(1)%uint32(len(ls.all))]} //nolint:gosec // there are few
	if s.polled.loop.add(c, fd) != nil {
		s.polled = nil
		_ = syscall.Close(fd) // there is another one
		return
	}
	s.Conn.Close() // the runtime is to know nothing of it any more
}

func duplicate(raw syscall.RawConn) (fd int, err error) {
	closed := raw.Control(func(old uintptr) {
		n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, old, syscall.F_DUPFD_CLOEXEC, 0)
		if fd = int(n); errno != 0 { //nolint:gosec // descriptors are small
			err = errno
		}
	})
	if closed != nil {
		return 0, closed
	}
	return fd, err
}

// shut ends one side or both.
func (p *polled) shut(how int) error {
	if p.fd < 0 {
		return net.ErrClosed
	}
	return syscall.Shutdown(p.fd, how)
}

func (p *polled) close() {
	p.loop.drop(p.fd)
	_ = syscall.Close(p.fd) // there is nobody to tell
	p.fd = -1
}
