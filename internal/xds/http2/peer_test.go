package http2

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is a client whose frames the test decides.
type peer struct {
	t  *testing.T
	c  net.Conn
	fr *xhttp2.Framer
	he *hpack.Encoder
	hb bytes.Buffer
	id uint32 // of the newest stream
}

// dial connects, and sends nothing.
func (v *service) dial() *peer {
	v.t.Helper()
	c, err := net.Dial("tcp", v.addr)
	require.NoError(v.t, err)
	return newPeer(v.t, c)
}

func newPeer(t *testing.T, c net.Conn) *peer {
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetReadDeadline(time.Now().Add(testTimeout)))
	p := &peer{t: t, c: c}
	p.fr = xhttp2.NewFramer(c, c)
	p.fr.AllowIllegalWrites = true
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.he = hpack.NewEncoder(&p.hb)
	return p
}

// connect is dial, with everything that precedes requests.
func (v *service) connect(settings ...xhttp2.Setting) *peer {
	v.t.Helper()
	p := v.dial()
	p.greet(settings...)
	return p
}

func (p *peer) greet(settings ...xhttp2.Setting) {
	p.t.Helper()
	p.raw(xhttp2.ClientPreface)
	require.NoError(p.t, p.fr.WriteSettings(settings...))
	require.NoError(p.t, p.fr.WriteSettingsAck())
}

func (p *peer) raw(s string) {
	p.t.Helper()
	_, err := io.WriteString(p.c, s)
	require.NoError(p.t, err)
}

// usual returns the fields of a request.
func usual(path string) []string {
	return []string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "test",
		"content-type", "application/grpc", "te", "trailers"}
}

func (p *peer) block(fields ...string) []byte {
	p.hb.Reset()
	for i := 0; i < len(fields); i += 2 {
		require.NoError(p.t, p.he.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(p.hb.Bytes())
}

// open begins a stream.
func (p *peer) open(path string, more ...string) uint32 {
	p.t.Helper()
	return p.openWith(false, append(usual(path), more...)...)
}

func (p *peer) openWith(end bool, fields ...string) uint32 {
	p.t.Helper()
	if p.id++; p.id > 1 {
		p.id++
	}
	b := p.block(fields...)
	n := min(len(b), maxFrame)
	require.NoError(p.t, p.fr.WriteHeaders(xhttp2.HeadersFrameParam{
		StreamID: p.id, BlockFragment: b[:n], EndHeaders: n == len(b), EndStream: end}))
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = min(len(b), maxFrame)
		require.NoError(p.t, p.fr.WriteContinuation(p.id, n == len(b), b[:n]))
	}
	return p.id
}

// framed returns a message with its prefix.
func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// send sends messages, each in a frame.
func (p *peer) send(id uint32, messages ...string) {
	p.t.Helper()
	for _, m := range messages {
		require.NoError(p.t, p.fr.WriteData(id, false, framed([]byte(m))))
	}
}

// answer is what arrived on a stream up to its end.
type answer struct {
	header, trailer map[string]string
	data            []byte
	reset           *xhttp2.ErrCode
}

// next returns the next frame other than settings, pings and window updates; nil: the connection
// has ended.
func (p *peer) next() xhttp2.Frame {
	p.t.Helper()
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			var ne net.Error
			require.False(p.t, errors.As(err, &ne) && ne.Timeout(), "nothing arrives")
			return nil
		}
		switch f := f.(type) {
		case *xhttp2.SettingsFrame:
			continue
		case *xhttp2.WindowUpdateFrame:
			continue
		case *xhttp2.PingFrame:
			if !f.IsAck() {
				require.NoError(p.t, p.fr.WritePing(true, f.Data))
			}
			continue
		}
		return f
	}
}

// answer reads a stream to its end.
func (p *peer) answer(id uint32) answer {
	p.t.Helper()
	var a answer
	for {
		f := p.next()
		require.NotNil(p.t, f, "the connection has ended")
		if g, ok := f.(*xhttp2.GoAwayFrame); ok {
			p.t.Fatalf("GOAWAY %v %s", g.ErrCode, g.DebugData())
		}
		if f.Header().StreamID != id {
			continue
		}
		switch f := f.(type) {
		case *xhttp2.MetaHeadersFrame:
			fields := map[string]string{}
			for _, h := range f.Fields {
				fields[h.Name] = h.Value
			}
			if a.header == nil {
				a.header = fields
			}
			if f.StreamEnded() {
				a.trailer = fields
				return a
			}
		case *xhttp2.DataFrame:
			a.data = append(a.data, f.Data()...)
			if f.StreamEnded() {
				return a
			}
		case *xhttp2.RSTStreamFrame:
			a.reset = &f.ErrCode
			return a
		}
	}
}

// message reads the next message of a stream.
func (p *peer) message(id uint32) []byte {
	p.t.Helper()
	var b []byte
	for len(b) < prefixLen || len(b) < prefixLen+int(binary.BigEndian.Uint32(b[1:])) {
		f := p.next()
		require.NotNil(p.t, f, "the connection has ended")
		if f.Header().StreamID != id {
			continue
		}
		if d, ok := f.(*xhttp2.DataFrame); ok {
			b = append(b, d.Data()...)
		} else if _, ok := f.(*xhttp2.MetaHeadersFrame); !ok {
			p.t.Fatalf("%v", f)
		}
	}
	require.Equal(p.t, framed(b[prefixLen:]), b, "one message")
	return b[prefixLen:]
}

// goneWith waits for the end of the connection, and checks the server's error code.
func (p *peer) goneWith(code xhttp2.ErrCode) {
	p.t.Helper()
	for {
		f := p.next()
		require.NotNil(p.t, f, "the connection has ended without a GOAWAY")
		if g, ok := f.(*xhttp2.GoAwayFrame); ok {
			require.Equal(p.t, code, g.ErrCode, "%s", g.DebugData())
			p.gone()
			return
		}
	}
}

// gone waits for the end of the connection.
func (p *peer) gone() {
	p.t.Helper()
	for p.next() != nil {
	}
}

// lives checks that the connection is served, by a call.
func (p *peer) lives() {
	p.t.Helper()
	id := p.open(echo)
	p.send(id, "alive")
	require.Equal(p.t, "alive", string(p.message(id)))
	require.NoError(p.t, p.fr.WriteRSTStream(id, xhttp2.ErrCodeCancel))
}

// half ends the client's side.
func (p *peer) half(id uint32) {
	p.t.Helper()
	require.NoError(p.t, p.fr.WriteData(id, true, nil))
}

func long(n int) string { return strings.Repeat("0123456789abcdef", n/16+1)[:n] }

// onTLS does the client's side of TLS.
func (p *peer) onTLS(conf *tls.Config) *peer {
	return newPeer(p.t, tls.Client(p.c, conf))
}
