package http2

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"

	"github.com/moonsail/moonsail/test/await"
)

// events are the calls of Receivers, in order.
type events struct {
	mu   sync.Mutex // guards list
	list []string
}

func (l *events) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, fmt.Sprintf(format, args...))
}

func (l *events) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.list...)
}

// batchReceiver answers in EndBatch. It refuses "bad" at once, and "late" in EndBatch.
type batchReceiver struct {
	*Stream
	*events
	late error
}

func (g *batchReceiver) Receive(b []byte) error {
	switch g.add("%d %s", g.id, b); string(b) {
	case "bad":
		return &Status{Internal, "at once"}
	case "late":
		g.late = &Status{Internal, "late"}
	}
	return nil
}

func (g *batchReceiver) EndBatch() error {
	g.add("%d batch ends", g.id)
	if g.late != nil {
		return g.late
	}
	return g.Send([][]byte{[]byte("answer")})
}

func (g *batchReceiver) End() { g.add("%d ended", g.id) }

const batches = "/test.Service/Batches"

// data writes DATA frames with a message each, for one write.
func data(t *testing.T, to *bytes.Buffer, id uint32, end bool, messages ...string) {
	fr := xhttp2.NewFramer(to, nil)
	for i, m := range messages {
		require.NoError(t, fr.WriteData(id, end && i == len(messages)-1, framed([]byte(m))))
	}
}

// TestEndBatch: EndBatch is called once after messages that arrive together.
func TestEndBatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(*bytes.Buffer)
		want  []string
	}{
		{"together", func(b *bytes.Buffer) { data(t, b, 1, false, "a", "b"); data(t, b, 3, false, "c") },
			[]string{"1 a", "1 b", "1 batch ends", "3 c", "3 batch ends"}},
		{"half close", func(b *bytes.Buffer) { data(t, b, 1, true, "a", "b") },
			[]string{"1 a", "1 b", "1 batch ends", "1 ended"}},
		{"one is refused at once", func(b *bytes.Buffer) { data(t, b, 1, false, "a", "bad", "b") },
			[]string{"1 a", "1 bad", "1 batch ends", "1 ended"}},
		{"refused in EndBatch", func(b *bytes.Buffer) { data(t, b, 1, false, "a", "late", "b") },
			[]string{"1 a", "1 late", "1 b", "1 batch ends", "1 ended"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l events
			v := serve(t, Options{}, map[string]Handler{batches: func(st *Stream) Receiver { return &batchReceiver{Stream: st, events: &l} }})
			p := v.connect()
			p.open(batches)
			p.open(batches)
			p.lives() // so that nothing else is left to read
			var b bytes.Buffer
			c.write(&b)
			p.raw(b.String())
			eventually(t, "all events have happened", func() bool { return len(l.all()) >= len(c.want) })
			require.Equal(t, c.want, l.all()[:len(c.want)])
		})
	}
}

// TestEndBatchBeforeHalfClose: a peer that sends a message and ends its side receives its answer.
func TestEndBatchBeforeHalfClose(t *testing.T) {
	v := serve(t, Options{}, map[string]Handler{batches: func(st *Stream) Receiver { return &batchReceiver{Stream: st, events: &events{}} }})
	p := v.connect()
	id := p.open(batches)
	var b bytes.Buffer
	data(t, &b, id, true, "a")
	p.raw(b.String())
	a := p.answer(id)
	require.Equal(t, framed([]byte("answer")), a.data)
	require.Equal(t, "0", a.trailer["grpc-status"])
}

// TestAnswersInOneWrite: answers to messages that arrived together go in one write. A pipe gives
// the reader one write at a time.
func TestAnswersInOneWrite(t *testing.T) {
	_, p, stop := pipe(t)
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		p.greet()
		p.open(echo)
		p.send(1, "first")
	}()
	require.Equal(t, "first", string(p.message(1)))
	await.From(t, ready)
	want := [][]byte{[]byte("one of three"), []byte("two of three"), []byte("three of three")}
	require.NoError(t, p.fr.WriteData(1, false, bytes.Join([][]byte{framed(want[0]), framed(want[1]), framed(want[2])}, nil)))
	b := make([]byte, 1<<12)
	n, err := p.c.Read(b)
	require.NoError(t, err)
	for _, w := range want {
		require.Contains(t, string(b[:n]), string(w))
	}
	stop()
}

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
	eventually(t, "everything that arrived is answered", func() bool {
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

// TestSendAllQueues: messages that exceed the window are sent later, complete and in order, before
// later messages.
func TestSendAllQueues(t *testing.T) {
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
