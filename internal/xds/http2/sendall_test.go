package http2

import (
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
)

// begun returns a stream that has sent its header, and its peer.
func begun(t *testing.T, settings ...xhttp2.Setting) (*call, *peer) {
	v := serve(t, Options{})
	p := v.connect(settings...)
	id := p.open(hold)
	c := v.call(0)
	require.NoError(t, c.Send([][]byte{[]byte("first")}))
	require.Equal(t, "first", string(p.message(id)))
	return c, p
}

// TestSendAllIsOneFrame: messages that the peer accepts at once are in one frame, and their parts
// may be reused.
func TestSendAllIsOneFrame(t *testing.T) {
	c, p := begun(t)
	eventually(t, "what came has been answered", func() bool {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return !c.conn.output.corked
	})
	head := []byte("one")
	kept, err := c.SendAll([][][]byte{{head, []byte(" of two")}, {[]byte("two of two")}})
	require.NoError(t, err)
	require.False(t, kept)
	copy(head, "xxx")
	want := append(framed([]byte("one of two")), framed([]byte("two of two"))...)
	require.Equal(t, want, p.next().(*xhttp2.DataFrame).Data())
}

// TestSendAllKeepsWhatHasNoRoom: messages that are sent later are complete and in order, before
// later messages.
func TestSendAllKeepsWhatHasNoRoom(t *testing.T) {
	const window = 100
	c, p := begun(t, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: window})
	kept, err := c.SendAll([][][]byte{{[]byte(long(60))}, {[]byte(long(70))}})
	require.NoError(t, err)
	require.True(t, kept)
	kept, err = c.SendAll([][][]byte{{[]byte("last")}})
	require.NoError(t, err)
	require.True(t, kept, "it must not precede the others")
	require.Equal(t, 2, c.Pending())
	require.NoError(t, p.fr.WriteWindowUpdate(c.id, 1000))
	for _, want := range []string{long(60), long(70), "last"} {
		require.Equal(t, want, string(p.message(c.id)))
	}
	eventually(t, "nothing is kept", func() bool { return c.Pending() == 0 })
	kept, err = c.SendAll([][][]byte{{[]byte("now")}})
	require.NoError(t, err)
	require.False(t, kept)
	require.Equal(t, "now", string(p.message(c.id)))
}
