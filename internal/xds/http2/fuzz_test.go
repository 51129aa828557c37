package http2

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// FuzzFrames: whatever follows the preface, the connection ends when the bytes end, every Receiver
// has ended by then, and nothing panics. Complete messages on a stream that ended without an error
// were echoed.
func FuzzFrames(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v := newService(t, Options{MaxMessage: 1 << 16})
		defer v.s.Stop()
		near, far := net.Pipe()
		c := newConn(v.s, far)
		var ended sync.WaitGroup
		ended.Go(func() {
			_, _ = io.WriteString(near, xhttp2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			_, _ = near.Write(b)
			near.Close()
		})
		var read bytes.Buffer
		ended.Go(func() { _, _ = io.Copy(&read, near) })
		v.s.running.Add(1)
		c.serve()
		ended.Wait()
		for _, x := range v.calls {
			require.True(t, x.over())
			require.ErrorIs(t, x.Send(nil), ErrEnded)
		}
		wellFormed(t, &read)
	})
}

// wellFormed parses what the server has sent, as far as it was read.
func wellFormed(t *testing.T, b *bytes.Buffer) {
	fr := xhttp2.NewFramer(nil, b)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		_, err := fr.ReadFrame()
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return
		}
		require.NoError(t, err, "frames of the server")
	}
}

// seeds are conversations that reach all parts of the server.
func seeds(f *testing.F) (out [][]byte) {
	write := func(say func(p *peer)) {
		var b bytes.Buffer
		p := &peer{t: &testing.T{}, fr: xhttp2.NewFramer(&b, nil)}
		p.fr.AllowIllegalWrites = true
		p.he = hpack.NewEncoder(&p.hb)
		say(p)
		out = append(out, b.Bytes())
	}
	write(func(p *peer) {
		id := p.open(echo)
		p.send(id, "hello", "")
		p.half(id)
	})
	write(func(p *peer) {
		id := p.open(fail, "grpc-timeout", "1S", "content-length", "8")
		p.send(id, "\x03no")
		_ = p.fr.WriteRSTStream(id, xhttp2.ErrCodeCancel)
		_ = p.fr.WriteData(id, true, []byte("late"))
	})
	write(func(p *peer) {
		_ = p.fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 3}, xhttp2.Setting{ID: xhttp2.SettingHeaderTableSize})
		id := p.open(echo)
		_ = p.fr.WriteDataPadded(id, false, framed([]byte("padded")), []byte{0, 0})
		_ = p.fr.WriteWindowUpdate(id, 4)
		_ = p.fr.WriteWindowUpdate(0, 1<<30)
		_ = p.fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1 << 20})
		p.half(id)
	})
	write(func(p *peer) {
		p.openWith(true, without(usual(echo), "content-type")...)
		p.openWith(true, with(usual(echo), "grpc-encoding", "gzip")...)
		p.open("/none")
		_ = p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 7, BlockFragment: p.block(usual(echo)...), Priority: xhttp2.PriorityParam{StreamDep: 1}})
		_ = p.fr.WriteContinuation(7, true, nil)
		_ = p.fr.WritePing(false, [8]byte{1})
		_ = p.fr.WritePing(true, gracePing)
		_ = p.fr.WriteGoAway(0, 0, []byte("bye"))
		_ = p.fr.WriteRawFrame(0x42, 0xff, 3, []byte("unknown"))
	})
	require.NotEmpty(f, out)
	return out
}
