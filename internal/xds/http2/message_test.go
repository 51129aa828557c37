package http2

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/moonsail/moonsail/test/await"
)

func TestMessages(t *testing.T) {
	v := serve(t, Options{})
	for name, c := range map[string]struct {
		data   []byte
		frames []int // lengths of all frames but the last
		want   []string
	}{
		"one":                    {framed([]byte("one")), nil, []string{"one"}},
		"empty":                  {framed(nil), nil, []string{""}},
		"three in a frame":       {append(append(framed([]byte("a")), framed(nil)...), framed([]byte("c"))...), nil, []string{"a", "", "c"}},
		"cut in the prefix":      {framed([]byte("abc")), []int{3}, []string{"abc"}},
		"cut behind the prefix":  {framed([]byte("abc")), []int{5}, []string{"abc"}},
		"cut in the message":     {framed([]byte("abc")), []int{6}, []string{"abc"}},
		"cut across two":         {append(framed([]byte("abc")), framed([]byte("def"))...), []int{2, 4, 7}, []string{"abc", "def"}},
		"empty frames between":   {framed([]byte("abc")), []int{0, 1, 0, 0, 5}, []string{"abc"}},
		"as large as many bufs":  {framed([]byte(long(200 << 10))), nil, []string{long(200 << 10)}},
		"large, then small ones": {append(framed([]byte(long(100<<10))), append(framed([]byte("x")), framed([]byte("y"))...)...), nil, []string{long(100 << 10), "x", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := v.connect()
			p.t = t
			id := p.open(hold)
			b := c.data
			for _, n := range c.frames {
				require.NoError(t, p.fr.WriteData(id, false, b[:n]))
				b = b[n:]
			}
			for len(b) > maxFrame {
				require.NoError(t, p.fr.WriteData(id, false, b[:maxFrame]))
				b = b[maxFrame:]
			}
			require.NoError(t, p.fr.WriteData(id, true, b))
			a := p.answer(id)
			require.Equal(t, "0", a.trailer["grpc-status"])
			v.mu.Lock()
			got := v.calls[len(v.calls)-1].got()
			v.mu.Unlock()
			require.Len(t, got, len(c.want))
			for i := range got {
				require.Equal(t, c.want[i], string(got[i]))
			}
		})
	}
}

// TestOneByteAtATime: the split of bytes into reads has no effect.
func TestOneByteAtATime(t *testing.T) {
	v := serve(t, Options{})
	p := v.dial()
	s := &slow{p: p}
	p.fr = xhttp2.NewFramer(s, p.c)
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	s.write([]byte(xhttp2.ClientPreface))
	require.NoError(t, p.fr.WriteSettings())
	id := p.open(echo)
	p.send(id, "hello", "world")
	require.Equal(t, "hello", string(p.message(id)))
	require.Equal(t, "world", string(p.message(id)))
	p.half(id)
	require.Equal(t, "0", p.answer(id).trailer["grpc-status"])
}

// slow writes byte by byte.
type slow struct{ p *peer }

func (s *slow) write(b []byte) {
	for i := range b {
		_, err := s.p.c.Write(b[i : i+1])
		require.NoError(s.p.t, err)
	}
}

func (s *slow) Write(b []byte) (int, error) { s.write(b); return len(b), nil }

func TestPaddingIsDropped(t *testing.T) {
	p := serve(t, Options{}).connect()
	id := p.open(echo)
	require.NoError(t, p.fr.WriteDataPadded(id, false, framed([]byte("padded")), make([]byte, 200)))
	require.Equal(t, "padded", string(p.message(id)))
}

func TestBadMessages(t *testing.T) {
	v := serve(t, Options{MaxMessage: 1000})
	for name, c := range map[string]struct {
		data []byte
		code Code
		text string
	}{
		"too large":           {binary.BigEndian.AppendUint32([]byte{0}, 1001), ResourceExhausted, "1001 bytes: the limit is 1000"},
		"far too large":       {binary.BigEndian.AppendUint32([]byte{0}, 1<<32-1), ResourceExhausted, "1000"},
		"compressed":          {append([]byte{1}, framed([]byte("x"))[1:]...), Internal, "compressed"},
		"no flag":             {append([]byte{7}, framed([]byte("x"))[1:]...), Internal, "7"},
		"ends in the message": {framed([]byte("abcdef"))[:8], Internal, "within a message"},
		"ends in the prefix":  {framed([]byte("abcdef"))[:3], Internal, "within a message"},
	} {
		t.Run(name, func(t *testing.T) {
			p := v.connect()
			p.t = t
			id := p.open(echo)
			require.NoError(t, p.fr.WriteData(id, true, c.data))
			a := p.answer(id)
			require.Equal(t, fmt.Sprint(c.code), a.trailer["grpc-status"])
			require.Contains(t, a.trailer["grpc-message"], c.text)
			p.lives()
		})
	}
}

// TestLargestMessage: a message of the maximum size is accepted, and its buffer is not kept.
func TestLargestMessage(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: maxWindow})
	require.NoError(t, p.fr.WriteWindowUpdate(0, maxWindow-firstWindow))
	id := p.open(hold)
	text := long(2 << 20)
	sent := make(chan struct{})
	go func() { // reads the window updates that arrive at the same time
		defer close(sent)
		p.sendWithin(id, framed([]byte(text)))
	}()
	c := v.call(0)
	eventually(t, "the message has arrived", func() bool { return len(c.got()) == 1 })
	await.From(t, sent)
	require.Equal(t, text, string(c.got()[0]))
}

// sendWithin sends DATA as the server's windows allow.
func (p *peer) sendWithin(id uint32, b []byte) {
	conn, stream := firstWindow, firstWindow
	for {
		for len(b) > 0 && conn > 0 && stream > 0 {
			n := min(len(b), maxFrame, conn, stream)
			if p.fr.WriteData(id, false, b[:n]) != nil {
				return
			}
			b, conn, stream = b[n:], conn-n, stream-n
		}
		if len(b) == 0 {
			return
		}
		f, err := p.fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *xhttp2.SettingsFrame:
			if n, ok := f.Value(xhttp2.SettingInitialWindowSize); ok {
				stream += int(n) - firstWindow
			}
		case *xhttp2.WindowUpdateFrame:
			if f.StreamID == 0 {
				conn += int(f.Increment)
			} else {
				stream += int(f.Increment)
			}
		}
	}
}
