package fleet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// server writes the frames of a control plane.
type server struct {
	bytes.Buffer
	*http2.Framer
}

func newServer() *server {
	s := &server{}
	s.Framer = http2.NewFramer(&s.Buffer, nil)
	return s
}

// message sends a message in frames of at most most bytes.
func (s *server) message(t *testing.T, text string, most int) {
	b := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
	for len(b) > 0 {
		n := min(most, len(b))
		require.NoError(t, s.WriteData(streamID, false, b[:n]))
		b = b[n:]
	}
}

// sent describes the frames that a client has written after its preface.
func sent(t *testing.T, b []byte) (out []string) {
	b = bytes.TrimPrefix(b, []byte(http2.ClientPreface))
	fr := http2.NewFramer(nil, bytes.NewReader(b))
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return out
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			out = append(out, fmt.Sprintf("DATA %q", f.Data()))
		case *http2.WindowUpdateFrame:
			out = append(out, fmt.Sprint("WINDOW_UPDATE ", f.StreamID, " ", f.Increment))
		case *http2.HeadersFrame:
			out = append(out, "HEADERS")
		default:
			out = append(out, fmt.Sprint(f.Header().Type, " ack=", f.Header().Flags.Has(http2.FlagSettingsAck)))
		}
	}
}

func client(t *testing.T) (*conn, *bytes.Buffer) {
	var out bytes.Buffer
	h, err := newConn(&out, "a")
	require.NoError(t, err)
	require.NoError(t, h.flush())
	require.Equal(t, []string{"SETTINGS ack=false", "WINDOW_UPDATE 0 25100289", "HEADERS"}, sent(t, out.Bytes()))
	out.Reset()
	return h, &out
}

// TestFramesInPieces checks that messages and answers do not depend on where the stream of bytes is cut.
func TestFramesInPieces(t *testing.T) {
	s, block := newServer(), bytes.Buffer{}
	require.NoError(t, hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"}))
	require.NoError(t, s.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100}))
	require.NoError(t, s.WriteSettingsAck())
	require.NoError(t, s.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, BlockFragment: block.Bytes(), EndHeaders: true}))
	s.message(t, "one", 100)
	s.message(t, strings.Repeat("two", 20), 7)
	require.NoError(t, s.WritePing(false, [8]byte{1}))
	s.message(t, "", 100)
	s.message(t, "four", 3)
	for _, piece := range []int{1, 2, 3, 5, 9, 10, 14, s.Len()} {
		h, out := client(t)
		var got []string
		for b := s.Bytes(); len(b) > 0; b = b[min(piece, len(b)):] {
			require.NoError(t, h.receive(b[:min(piece, len(b))], func(m []byte) error {
				got = append(got, string(m))
				return nil
			}))
		}
		require.Equal(t, []string{"one", strings.Repeat("two", 20), "", "four"}, got, piece)
		require.NoError(t, h.flush())
		require.Equal(t, []string{"SETTINGS ack=true", "PING ack=true"}, sent(t, out.Bytes()), piece)
	}
}

// TestWindows checks that received bytes are given back to the peer's windows, and that sending waits for them.
func TestWindows(t *testing.T) {
	h, out := client(t)
	s, n := newServer(), 0
	for range streamWindow/2/maxFrame + 1 {
		s.message(t, strings.Repeat("x", maxFrame-prefixLen), maxFrame)
	}
	require.NoError(t, h.receive(s.Bytes(), func([]byte) error { n++; return nil }))
	require.Equal(t, streamWindow/2/maxFrame+1, n)
	require.NoError(t, h.flush())
	require.Equal(t, []string{fmt.Sprint("WINDOW_UPDATE 1 ", streamWindow/2)}, sent(t, out.Bytes()))

	out.Reset()
	s = newServer()
	require.NoError(t, s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
	require.NoError(t, h.receive(s.Bytes(), nil))
	h.send([]byte("hello"))
	h.send([]byte("world"))
	require.NoError(t, h.flush())
	require.Equal(t, []string{"SETTINGS ack=true", `DATA "\x00\x00\x00\x00\x05hello"`}, sent(t, out.Bytes()))
	out.Reset()
	s = newServer()
	require.NoError(t, s.WriteWindowUpdate(streamID, 7))
	require.NoError(t, h.receive(s.Bytes(), nil))
	require.NoError(t, h.flush())
	require.Equal(t, []string{`DATA "\x00\x00\x00\x00\x05wo"`}, sent(t, out.Bytes()))
}

// TestEndOfStream checks that the error describes why the stream ended.
func TestEndOfStream(t *testing.T) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":status", "200"}, {"grpc-status", "14"}, {"grpc-message", "gone"}} {
		require.NoError(t, enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	for want, write := range map[string]func(*server) error{
		"gRPC status 14: gone": func(s *server) error {
			return s.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		},
		"reset the stream: CANCEL": func(s *server) error { return s.WriteRSTStream(streamID, http2.ErrCodeCancel) },
		"GOAWAY: NO_ERROR bye":     func(s *server) error { return s.WriteGoAway(streamID, http2.ErrCodeNo, []byte("bye")) },
		"ended the stream":         func(s *server) error { return s.WriteData(streamID, true, nil) },
		"compressed":               func(s *server) error { return s.WriteData(streamID, false, []byte{1, 0, 0, 0, 0}) },
	} {
		h, _ := client(t)
		s := newServer()
		require.NoError(t, write(s))
		require.ErrorContains(t, h.receive(s.Bytes(), nil), want)
	}
}
