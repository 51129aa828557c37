package chaos

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echoServer answers each line, prefixed with its name.
func echoServer(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for s := bufio.NewScanner(c); s.Scan(); {
					fmt.Fprintln(c, name+" "+s.Text())
				}
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func TestRelay(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	r, err := newRelay(0, gone.Addr().String(), echoServer(t, "second"))
	require.NoError(t, err)
	defer func() { require.NoError(t, r.stop()) }()
	c, err := net.Dial("tcp", r.addr())
	require.NoError(t, err)
	defer c.Close()
	answers := bufio.NewReader(c)
	ask := func(what string) {
		_, err := fmt.Fprintln(c, what)
		require.NoError(t, err)
	}
	expect := func(what string) {
		said, err := answers.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, what+"\n", said)
	}
	ask("one")
	expect("second one")

	release := r.hold()
	ask("two")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = answers.ReadString('\n')
	require.Error(t, err, "bytes are held")
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	release()
	expect("second two")

	r.slow(time.Millisecond, 0)
	ask("three")
	expect("second three")
	require.GreaterOrEqual(t, r.slow(0, 0), 2, "reads that were late, in both directions")
	r.slow(0, 1)
	ask("four")
	expect("second four")
	require.GreaterOrEqual(t, r.slow(0, 0), 4)

	r.reset()
	_, err = answers.ReadString('\n')
	require.Error(t, err)
}

func TestRelayRefusesConnections(t *testing.T) {
	r, err := newRelay(0, echoServer(t, "server"))
	require.NoError(t, err)
	defer func() { require.NoError(t, r.stop()) }()
	ask := func() error {
		c, err := net.Dial("tcp", r.addr())
		if err != nil {
			return err // on a busy machine the reset precedes the end of the handshake
		}
		defer c.Close()
		if _, err := fmt.Fprintln(c, "hello"); err != nil {
			return err
		}
		_, err = bufio.NewReader(c).ReadString('\n')
		return err
	}
	require.NoError(t, ask())
	end := r.disconnect()
	require.Error(t, ask())
	require.Equal(t, 1, end())
	require.NoError(t, ask())
}
