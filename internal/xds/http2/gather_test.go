package http2

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
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

// gatherer is a Receiver that answers in Gathered. It refuses "bad" at once, and "late" in
// Gathered.
type gatherer struct {
	*Stream
	*events
	late error
}

func (g *gatherer) Receive(b []byte) error {
	switch g.add("%d %s", g.id, b); string(b) {
	case "bad":
		return &Status{Internal, "at once"}
	case "late":
		g.late = &Status{Internal, "late"}
	}
	return nil
}

func (g *gatherer) Gathered() error {
	g.add("%d gathered", g.id)
	if g.late != nil {
		return g.late
	}
	return g.Send([][]byte{[]byte("answer")})
}

func (g *gatherer) End() { g.add("%d ended", g.id) }

const gather = "/test.Service/Gather"

// data writes DATA frames with a message each, for one write.
func data(t *testing.T, to *bytes.Buffer, id uint32, end bool, messages ...string) {
	fr := xhttp2.NewFramer(to, nil)
	for i, m := range messages {
		require.NoError(t, fr.WriteData(id, end && i == len(messages)-1, framed([]byte(m))))
	}
}

// TestGathered: messages that arrive together precede one call of Gathered.
func TestGathered(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(*bytes.Buffer)
		want  []string
	}{
		{"together", func(b *bytes.Buffer) { data(t, b, 1, false, "a", "b"); data(t, b, 3, false, "c") },
			[]string{"1 a", "1 b", "1 gathered", "3 c", "3 gathered"}},
		{"and then the end", func(b *bytes.Buffer) { data(t, b, 1, true, "a", "b") },
			[]string{"1 a", "1 b", "1 gathered", "1 ended"}},
		{"then what is refused", func(b *bytes.Buffer) { data(t, b, 1, false, "a", "bad", "b") },
			[]string{"1 a", "1 bad", "1 gathered", "1 ended"}},
		{"refused in the end", func(b *bytes.Buffer) { data(t, b, 1, false, "a", "late", "b") },
			[]string{"1 a", "1 late", "1 b", "1 gathered", "1 ended"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l events
			v := serve(t, Options{}, map[string]Handler{gather: func(st *Stream) Receiver { return &gatherer{Stream: st, events: &l} }})
			p := v.connect()
			p.open(gather)
			p.open(gather)
			p.lives() // so that nothing else is left to read
			var b bytes.Buffer
			c.write(&b)
			p.raw(b.String())
			eventually(t, "all events have happened", func() bool { return len(l.all()) >= len(c.want) })
			require.Equal(t, c.want, l.all()[:len(c.want)])
		})
	}
}

// TestGatheredAnswersBeforeTheEnd: a peer that sends a message and ends its side receives its
// answer.
func TestGatheredAnswersBeforeTheEnd(t *testing.T) {
	v := serve(t, Options{}, map[string]Handler{gather: func(st *Stream) Receiver { return &gatherer{Stream: st, events: &events{}} }})
	p := v.connect()
	id := p.open(gather)
	var b bytes.Buffer
	data(t, &b, id, true, "a")
	p.raw(b.String())
	a := p.answer(id)
	require.Equal(t, framed([]byte("answer")), a.data)
	require.Equal(t, "0", a.trailer["grpc-status"])
}
