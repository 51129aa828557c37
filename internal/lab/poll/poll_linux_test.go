package poll

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/test/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns a Conn and the other end of it.
func pair(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	mine, other := loopback.Pair(t)
	c, err := Take(mine)
	require.NoError(t, err)
	require.Equal(t, other.RemoteAddr(), c.LocalAddr())
	return c, other
}

// echo answers each message with two copies of it.
type echo struct {
	err  error
	gone bool
}

func (e *echo) Ready(c *Conn, buf []byte, gone bool) bool {
	n, err := c.Read(buf)
	for range 2 {
		if err == nil && n > 0 {
			_, err = c.Write(buf[:n])
		}
	}
	e.err, e.gone = err, gone
	return err == nil
}

// start serves a Conn until its end. The returned function waits for that.
func start(t *testing.T, ls *Loops, c *Conn, h Handler) (wait func()) {
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := c.Serve(ls.Next(), h); err != nil {
			t.Error(err)
		}
	})
	return ended.Wait
}

func loops(t *testing.T) *Loops {
	t.Helper()
	ls := Start()
	require.NotNil(t, ls)
	t.Cleanup(ls.Stop)
	return ls
}

// TestPartialWritesAreCompleted checks that all is written to a peer that reads nothing until it has written
// everything.
func TestPartialWritesAreCompleted(t *testing.T) {
	ls := loops(t)
	for range 3 {
		c, other := pair(t)
		e := &echo{}
		wait := start(t, ls, c, e)
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
		_, err := other.Write(sent)
		require.NoError(t, err)
		got := make([]byte, 2*len(sent))
		_, err = io.ReadFull(other, got)
		require.NoError(t, err)
		for _, b := range sent[:16] { // each piece that was read is there twice, wherever it was cut
			require.Equal(t, bytes.Count(sent, []byte{b})*2, bytes.Count(got, []byte{b}))
		}
		other.Close()
		wait()
		require.Error(t, e.err)
		c.Close()
		c.Close() // twice
	}
}

func TestEndCallsHandler(t *testing.T) {
	ls := loops(t)
	c, other := pair(t)
	e := &echo{}
	wait := start(t, ls, c, e)
	c.End()
	wait()
	require.Equal(t, io.EOF, e.err)
	require.True(t, e.gone)
	c.Close()
	_, err := other.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	c.End() // a closed Conn has none
}

// once leaves the loop after each message.
type once struct{ echo }

func (o *once) Ready(c *Conn, buf []byte, gone bool) bool {
	o.echo.Ready(c, buf, gone)
	return false
}

// TestDataWaitsWhileNotServed checks that data that arrives while a Conn is not served is read when it is served again.
func TestDataWaitsWhileNotServed(t *testing.T) {
	ls := loops(t)
	c, other := pair(t)
	defer c.Close()
	for range 5 {
		_, err := other.Write([]byte("a"))
		require.NoError(t, err)
		require.NoError(t, c.Serve(ls.Next(), &once{}))
		_, err = io.ReadFull(other, make([]byte, 2))
		require.NoError(t, err)
	}
}

// hasty writes much, and leaves the loop before the kernel has taken all of it.
type hasty struct{ err error }

func (h *hasty) Ready(c *Conn, buf []byte, _ bool) bool {
	if _, h.err = c.Read(buf); h.err == nil {
		_, h.err = c.Write(bytes.Repeat([]byte("0123456789abcdef"), 1<<20))
	}
	return false
}

// TestWriteContinuesWhenServedAgain checks that the rest of a write follows when the Conn is served again.
func TestWriteContinuesWhenServedAgain(t *testing.T) {
	ls := loops(t)
	c, other := pair(t)
	defer c.Close()
	_, err := other.Write([]byte("a"))
	require.NoError(t, err)
	h := &hasty{}
	require.NoError(t, c.Serve(ls.Next(), h))
	require.NoError(t, h.err)
	require.NotEmpty(t, c.rest, "the kernel took all")
	e := &echo{}
	wait := start(t, ls, c, e)
	got := make([]byte, 16<<20)
	_, err = io.ReadFull(other, got)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte("0123456789abcdef"), 1<<20), got)
	c.End()
	wait()
}

func TestStopEndsServe(t *testing.T) {
	ls := Start()
	require.NotNil(t, ls)
	c, other := pair(t)
	defer c.Close()
	e := &echo{}
	wait := start(t, ls, c, e)
	_, err := other.Write([]byte("a"))
	require.NoError(t, err)
	_, err = io.ReadFull(other, make([]byte, 2)) // it is served now
	require.NoError(t, err)
	ls.Stop()
	wait()
	require.NoError(t, e.err)
}
