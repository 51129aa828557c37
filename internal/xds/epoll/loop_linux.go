package epoll

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Loops are several Loops, each with a goroutine. Stop ends them.
type Loops[T any] struct {
	all   []*Loop[T]
	turn  atomic.Uint32
	ended sync.WaitGroup
}

// Loop reports events of descriptors, each of which belongs to a T. It has an epoll instance, and
// waits for it in the runtime's poller, so that no thread blocks.
type Loop[T any] struct {
	file *os.File
	raw  syscall.RawConn

	// Of the goroutine that calls Wait and Each.
	poll   func(epoll uintptr) bool // pollOnce
	events [atOnce]syscall.EpollEvent
	ready  [atOnce]*T
	n      int
	err    error

	mu     sync.Mutex // guards owners
	owners []*T       // by descriptor
}

// atOnce is the maximum number of events for each call of Each.
const atOnce = 128

// Start starts a loop for each CPU. run is the goroutine of a loop; it must return when Wait
// returns false. Stop ends them. Start returns nil if loops are not available, for example because
// descriptors have run out. The caller then needs a goroutine for each descriptor, which takes more
// CPU.
func Start[T any](run func(*Loop[T])) *Loops[T] {
	ls := &Loops[T]{}
	for range runtime.GOMAXPROCS(0) {
		l, err := newLoop[T]()
		if err != nil {
			ls.Stop()
			return nil
		}
		ls.all = append(ls.all, l)
		ls.ended.Go(func() { run(l) })
	}
	return ls
}

func newLoop[T any]() (*Loop[T], error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // otherwise the runtime cannot wait for it
		_ = syscall.Close(fd)
		return nil, err
	}
	l := &Loop[T]{file: os.NewFile(uintptr(fd), "epoll")} //nolint:gosec // it is not negative
	l.poll = l.pollOnce
	l.raw, err = l.file.SyscallConn()
	if err == nil {
		err = l.file.SetReadDeadline(time.Time{}) // fails if the runtime cannot wait for it
	}
	if err != nil {
		l.file.Close()
	}
	return l, err
}

// Next returns the loops in turn.
func (ls *Loops[T]) Next() *Loop[T] {
	return ls.all[ls.turn.Add(1)%uint32(len(ls.all))] //nolint:gosec // there are few
}

// Stop makes Wait return false, and waits for the goroutines. For nil it does nothing.
func (ls *Loops[T]) Stop() {
	if ls == nil {
		return
	}
	for _, l := range ls.all {
		l.file.Close()
	}
	ls.ended.Wait()
}

// Wait waits for events, which Each then reports. It returns false after Stop.
func (l *Loop[T]) Wait() bool { return l.raw.Read(l.poll) == nil && l.err == nil }

// pollOnce collects events; false: there are none.
func (l *Loop[T]) pollOnce(epoll uintptr) bool {
	for {
		l.n, l.err = syscall.EpollWait(int(epoll), l.events[:], 0) //nolint:gosec // descriptors are small
		if l.err != syscall.EINTR {
			return l.n != 0
		}
	}
}

// Each reports the events that Wait has collected. An owner may receive an event of another
// descriptor, if it has the same number.
func (l *Loop[T]) Each(handle func(owner *T, events uint32)) {
	l.find()
	for i, owner := range l.ready[:l.n] {
		if owner != nil {
			handle(owner, l.events[i].Events)
		}
	}
}

// find looks up the owners of events.
func (l *Loop[T]) find() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.n {
		l.ready[i] = l.owners[l.events[i].Fd]
	}
}

// Add starts to wait for events of a descriptor: EPOLLIN and others. Drop must be called before the
// descriptor is closed.
func (l *Loop[T]) Add(fd int, owner *T, events uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.owners) <= fd {
		l.owners = append(l.owners, nil)
	}
	l.owners[fd] = owner
	err := l.control(syscall.EPOLL_CTL_ADD, fd, events)
	if err != nil {
		l.owners[fd] = nil
	}
	return err
}

// Modify waits for other events of a descriptor.
func (l *Loop[T]) Modify(fd int, events uint32) error {
	return l.control(syscall.EPOLL_CTL_MOD, fd, events)
}

// Drop stops waiting for a descriptor.
func (l *Loop[T]) Drop(fd int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.control(syscall.EPOLL_CTL_DEL, fd, 0) // it exists
	l.owners[fd] = nil
}

// Left returns the owners that were not dropped, once, after Wait has returned false.
func (l *Loop[T]) Left() []*T {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.owners
	l.owners = nil
	return slices.DeleteFunc(all, func(owner *T) bool { return owner == nil })
}

func (l *Loop[T]) control(op, fd int, events uint32) (err error) {
	closed := l.raw.Control(func(epoll uintptr) {
		err = syscall.EpollCtl(int(epoll), op, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)}) //nolint:gosec // descriptors are small
	})
	if closed != nil {
		return closed
	}
	return err
}

// Duplicate returns another descriptor of the same socket, for which the runtime does not wait.
func Duplicate(raw syscall.RawConn) (fd int, err error) {
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

// Receive reads from a non-blocking socket, like read(2).
func Receive(fd int, b []byte) (int, error) { return syscall.Read(fd, b) }

// Send writes to a non-blocking socket, like write(2).
func Send(fd int, b []byte) (int, error) { return syscall.Write(fd, b) }
