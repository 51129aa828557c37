package http2

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
)

// TestTrickledCredit: without a window only headers are sent, then one byte for each byte of
// credit, in order, and the trailers last.
func TestTrickledCredit(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
	id := p.open(echo)
	p.send(id, "hello", "world")
	p.half(id)
	want := append(framed([]byte("hello")), framed([]byte("world"))...)
	var got []byte
	for range want {
		require.NoError(t, p.fr.WriteWindowUpdate(id, 1))
		f := p.next()
		if _, ok := f.(*xhttp2.MetaHeadersFrame); ok {
			f = p.next()
		}
		d := f.(*xhttp2.DataFrame)
		require.Len(t, d.Data(), 1)
		got = append(got, d.Data()...)
	}
	require.Equal(t, want, got)
	require.Equal(t, "0", p.answer(id).trailer["grpc-status"])
}

// TestConnectionWindow: two streams share the connection's credit, and both are served.
func TestConnectionWindow(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: maxWindow})
	ids := []uint32{p.open(hold), p.open(hold)}
	text := []byte(long(100 << 10))
	for n := range ids {
		require.NoError(t, v.call(n).Send([][]byte{text[:1000], text[1000:]}))
	}
	got, left := map[uint32][]byte{}, firstWindow
	for len(got[ids[0]])+len(got[ids[1]]) < 2*(len(text)+prefixLen) {
		if left == 0 {
			left = 50_000
			require.NoError(t, p.fr.WriteWindowUpdate(0, uint32(left)))
		}
		if d, ok := p.next().(*xhttp2.DataFrame); ok {
			got[d.StreamID] = append(got[d.StreamID], d.Data()...)
			require.LessOrEqual(t, len(d.Data()), left, "more than the window")
			left -= len(d.Data())
		}
	}
	for _, id := range ids {
		require.True(t, bytes.Equal(framed(text), got[id]))
	}
}

// TestWindowShrinks: a smaller initial window makes the windows of open streams negative, until
// they grow again.
func TestWindowShrinks(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 100})
	id := p.open(hold)
	require.NoError(t, v.call(0).Send([][]byte{[]byte(long(195))}))
	require.NotNil(t, p.next().(*xhttp2.MetaHeadersFrame))
	require.Len(t, p.next().(*xhttp2.DataFrame).Data(), 100)
	require.NoError(t, p.fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 40})) // now -60
	require.NoError(t, p.fr.WriteWindowUpdate(id, 60))                                                   // now 0
	require.NoError(t, p.fr.WriteWindowUpdate(id, 7))
	require.Len(t, p.next().(*xhttp2.DataFrame).Data(), 7)
	require.NoError(t, p.fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 50}))
	require.Len(t, p.next().(*xhttp2.DataFrame).Data(), 10)
	require.NoError(t, p.fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: maxWindow}))
	require.Len(t, p.next().(*xhttp2.DataFrame).Data(), 83)
}

func TestWindowsOverflow(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	id := p.open(hold)
	require.NoError(t, p.fr.WriteWindowUpdate(id, maxWindow))
	require.Equal(t, xhttp2.ErrCodeFlowControl, *p.answer(id).reset)
	p.lives()
	require.NoError(t, p.fr.WriteWindowUpdate(0, maxWindow))
	p.goneWith(xhttp2.ErrCodeFlowControl)

	p = v.connect()
	id = p.open(hold)
	require.NoError(t, p.fr.WriteWindowUpdate(id, maxWindow-firstWindow))
	require.NoError(t, p.fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: firstWindow + 1}))
	p.goneWith(xhttp2.ErrCodeFlowControl)
}

// TestServerWindowsAreEnforced: a peer that exceeds the server's windows ends the stream, or the connection.
// No window updates are sent while a message is dropped.
func TestServerWindowsAreEnforced(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	id := p.openWith(false, without(usual(echo), "content-type")...) // refused: no window updates are sent
	frame := make([]byte, maxFrame)
	for range streamWindow / maxFrame {
		require.NoError(t, p.fr.WriteData(id, false, frame))
	}
	require.NoError(t, p.fr.WriteData(id, false, frame[:1]))
	for {
		f := p.next()
		require.NotNil(t, f)
		if r, ok := f.(*xhttp2.RSTStreamFrame); ok {
			require.Equal(t, xhttp2.ErrCodeFlowControl, r.ErrCode)
			break
		}
	}
	p.lives()
}

// TestWindowsAreUpdated: one stream can carry much more than the windows.
func TestWindowsAreUpdated(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	id := p.open(hold)
	var all []byte
	for i := range 300 {
		all = append(all, framed(fmt.Appendf(nil, "%d %s", i, long(10_000)))...)
	}
	p.sendWithin(id, all)
	c := v.call(0)
	eventually(t, "everything has arrived", func() bool { return len(c.got()) == 300 })
}

// stall opens a stream on a connection that reads nothing, and sends until the kernel's buffer is
// full and messages are queued.
func stall(v *service, n int, message []byte) *call {
	v.t.Helper()
	c, stalled := tryStall(v, n, message)
	require.True(v.t, stalled)
	return c
}

// tryStall is stall for a connection that may end first.
func tryStall(v *service, n int, message []byte) (c *call, stalled bool) {
	p := v.connect(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: maxWindow})
	require.NoError(v.t, p.c.(*net.TCPConn).SetReadBuffer(4096))
	require.NoError(v.t, p.fr.WriteWindowUpdate(0, maxWindow-firstWindow))
	p.open(hold)
	c = v.call(n)
	for c.Pending() == 0 {
		if c.Send([][]byte{message}) != nil {
			return c, false
		}
	}
	return c, true
}

// TestStalledPeer: a peer that reads nothing blocks no sender. Queued messages share the bytes of
// their parts, and one goroutine waits.
func TestStalledPeer(t *testing.T) {
	v := serve(t, Options{})
	message := []byte(long(1 << 20))
	before := runtime.NumGoroutine()
	c := stall(v, 0, message)
	for range 100 {
		require.NoError(t, c.Send([][]byte{message}))
	}
	require.GreaterOrEqual(t, c.Pending(), 100)
	for end := time.Now().Add(testTimeout); runtime.NumGoroutine() > before+2 && time.Now().Before(end); {
		runtime.Gosched() // a goroutine that looked for the call may not have ended yet
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before+2, "the connection's goroutine, and the one that writes")
	v.connect().lives()

	c.conn.socket.mu.Lock()
	rest := len(c.conn.socket.rest)
	c.conn.socket.mu.Unlock()
	require.LessOrEqual(t, rest, 2*len(writeBuffer{}), "framed bytes that the kernel did not take")
}

// TestStalledPeerContinues: queued messages arrive complete and in order.
func TestStalledPeerContinues(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: maxWindow})
	require.NoError(t, p.fr.WriteWindowUpdate(0, maxWindow-firstWindow))
	id := p.open(hold)
	c := v.call(0)
	n := 0
	for ; c.Pending() < 5; n++ {
		require.NoError(t, c.Send([][]byte{fmt.Appendf(nil, "%d ", n), []byte(long(500_000))}))
	}
	for i := range n {
		require.Equal(t, fmt.Sprintf("%d %s", i, long(500_000)), string(p.message(id)))
	}
	require.Zero(t, c.Pending())
	eventually(t, "everything is written", func() bool { return !c.conn.socket.blocked() })
	p.lives()
}

// TestSendersShareAConnection: many goroutines send on many streams while the peer reads.
func TestSendersShareAConnection(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	const streams, each = 10, 50
	for range streams {
		p.open(hold)
	}
	for n := range streams {
		c := v.call(n)
		go func() {
			for i := range each {
				_ = c.Send([][]byte{{byte(i)}})
			}
		}()
	}
	next := map[uint32]byte{}
	for total := 0; total < streams*each; {
		if d, ok := p.next().(*xhttp2.DataFrame); ok {
			require.Equal(t, framed([]byte{next[d.StreamID]}), d.Data())
			next[d.StreamID]++
			total++
		}
	}
}
