package epoll

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner is the T of one end of a socket.
type owner struct{ events chan uint32 }

// startLoops starts loops that send owners their events.
func startLoops(t *testing.T) *Loops[owner] {
	t.Helper()
	ls := Start(func(l *Loop[owner]) {
		for l.Wait() {
			l.Each(func(o *owner, events uint32) { o.events <- events })
		}
		for _, o := range l.Left() {
			close(o.events)
		}
	})
	require.NotNil(t, ls)
	return ls
}

// pair returns a descriptor for which the runtime does not wait, and the other end of its
// connection.
func pair(t *testing.T) (int, net.Conn) {
	t.Helper()
	mine, other := loopback.Pair(t)
	defer mine.Close()
	raw, err := mine.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	fd, err := Duplicate(raw)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	return fd, other
}

func TestEventsReachTheirOwner(t *testing.T) {
	ls := startLoops(t)
	defer ls.Stop()
	for range 3 {
		fd, other := pair(t)
		l, o := ls.Next(), &owner{make(chan uint32, 1)}
		require.NoError(t, l.Add(fd, o, syscall.EPOLLOUT|syscall.EPOLLONESHOT))
		require.EqualValues(t, syscall.EPOLLOUT, await.From(t, o.events))
		require.NoError(t, l.Modify(fd, syscall.EPOLLRDHUP|syscall.EPOLLONESHOT))
		other.Close()
		require.EqualValues(t, syscall.EPOLLRDHUP, await.From(t, o.events))
		l.Drop(fd)
	}
}

// TestLeftReturnsOwners: Left returns neither owners that were dropped nor owners that could not
// be added.
func TestLeftReturnsOwners(t *testing.T) {
	ls := startLoops(t)
	l := ls.Next()
	first, _ := pair(t)
	second, _ := pair(t)
	dropped, left := &owner{make(chan uint32)}, &owner{make(chan uint32)}
	require.NoError(t, l.Add(first, dropped, 0))
	require.NoError(t, l.Add(second, left, 0))
	l.Drop(first)
	file, err := os.Open(".")
	require.NoError(t, err)
	defer file.Close()
	require.Error(t, l.Add(int(file.Fd()), dropped, 0), "epoll does not support directories")
	ls.Stop()
	_, open := <-left.events
	require.False(t, open)
	select {
	case <-dropped.events:
		t.Error("it was dropped")
	default:
	}
	(*Loops[owner])(nil).Stop()
}

// TestStopClosesDescriptors: all descriptors are closed.
func TestStopClosesDescriptors(t *testing.T) {
	startLoops(t).Stop() // the runtime now has its own epoll instance
	before := descriptors(t)
	startLoops(t).Stop()
	require.Equal(t, before, descriptors(t))
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// TestSendAndReceive: a closed socket returns errors, and raises no signal.
func TestSendAndReceive(t *testing.T) {
	fd, other := pair(t)
	n, err := Send(fd, []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, 5, n)
	got := make([]byte, 8)
	_, err = other.Read(got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got[:5]))
	_, err = Receive(fd, got)
	require.ErrorIs(t, err, syscall.EAGAIN)
	_, err = other.Write([]byte("you"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, err = Receive(fd, got)
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, "you", string(got[:n]))
	require.NoError(t, other.Close())
	require.Eventually(t, func() bool {
		n, err = Receive(fd, got)
		return err == nil && n == 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, syscall.Shutdown(fd, syscall.SHUT_WR))
	_, err = Send(fd, got)
	require.ErrorIs(t, err, syscall.EPIPE)
}
