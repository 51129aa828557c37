package http2

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
)

// without removes fields of a request, and with adds some.
func without(fields []string, name string) (out []string) {
	for i := 0; i < len(fields); i += 2 {
		if fields[i] != name {
			out = append(out, fields[i], fields[i+1])
		}
	}
	return out
}

func with(fields []string, more ...string) []string {
	return append(append([]string(nil), fields...), more...)
}

// TestRequests: the effects of header blocks. The connection continues in every case.
func TestRequests(t *testing.T) {
	v := serve(t, Options{})
	ok := usual(echo)
	for name, c := range map[string]struct {
		fields []string
		status string // HTTP status; empty: the stream is reset with PROTOCOL_ERROR
		code   string // gRPC status
		text   string // in the message, or in the body
	}{
		"good":                       {ok, "200", "0", ""},
		"content-type with a format": {with(without(ok, "content-type"), "content-type", "application/grpc+proto"), "200", "0", ""},
		"content-type with a set":    {with(without(ok, "content-type"), "content-type", "application/grpc;charset=utf-8"), "200", "0", ""},
		"timeout":                    {with(ok, "grpc-timeout", "99999999H"), "200", "0", ""},
		"identity":                   {with(ok, "grpc-encoding", "identity"), "200", "0", ""},

		"unknown method":        {usual("/test.Service/None"), "200", "12", `unknown method "/test.Service/None"`},
		"unknown service":       {usual("/none.Service/Echo"), "200", "12", "unknown method"},
		"no path of gRPC":       {usual("*"), "200", "12", "unknown method"},
		"gzip":                  {with(ok, "grpc-encoding", "gzip"), "200", "12", `compression "gzip"`},
		"malformed timeout":     {with(ok, "grpc-timeout", "1x"), "200", "13", "grpc-timeout"},
		"content-type of JSON":  {with(without(ok, "content-type"), "content-type", "application/json"), "415", "", "application/grpc"},
		"content-type like it":  {with(without(ok, "content-type"), "content-type", "application/grpcx"), "415", "", "application/grpc"},
		"no content-type":       {without(ok, "content-type"), "415", "", "application/grpc"},
		"GET":                   {with([]string{":method", "GET"}, without(ok, ":method")...), "405", "", "POST"},
		"header list too large": {with(ok, "x", long(maxHeaderList)), "431", "", "too large"},

		"no method":            {without(ok, ":method"), "", "", ""},
		"no scheme":            {without(ok, ":scheme"), "", "", ""},
		"no path":              {without(ok, ":path"), "", "", ""},
		"empty path":           {usual(""), "", "", ""},
		"twice a path":         {append([]string{":path", echo}, ok...), "", "", ""},
		"pseudo after regular": {with(without(ok, ":path"), ":path", echo), "", "", ""},
		"unknown pseudo":       {append([]string{":x", "y"}, ok...), "", "", ""},
		"pseudo of a response": {append([]string{":status", "200"}, ok...), "", "", ""},
		"extended CONNECT":     {append([]string{":protocol", "websocket"}, ok...), "", "", ""},
		"upper case":           {with(ok, "Upper", "x"), "", "", ""},
		"a value of two lines": {with(ok, "x", "a\r\nb"), "", "", ""},
		"connection":           {with(ok, "connection", "close"), "", "", ""},
		"keep-alive":           {with(ok, "keep-alive", "1"), "", "", ""},
		"proxy-connection":     {with(ok, "proxy-connection", "x"), "", "", ""},
		"transfer-encoding":    {with(ok, "transfer-encoding", "chunked"), "", "", ""},
		"upgrade":              {with(ok, "upgrade", "h2c"), "", "", ""},
		"te":                   {with(without(ok, "te"), "te", "gzip"), "", "", ""},
		"content-length":       {with(ok, "content-length", "-1"), "", "", ""},
		"two content-lengths":  {with(ok, "content-length", "5", "content-length", "6"), "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := v.connect()
			p.t = t
			id := p.openWith(true, c.fields...)
			a := p.answer(id)
			if c.status == "" {
				require.NotNil(t, a.reset)
				require.Equal(t, xhttp2.ErrCodeProtocol, *a.reset)
			} else {
				require.Nil(t, a.reset)
				require.Equal(t, c.status, a.header[":status"])
				require.Equal(t, c.code, a.trailer["grpc-status"])
				require.Contains(t, string(a.data)+a.trailer["grpc-message"], c.text)
			}
			if c.code == "12" {
				require.Equal(t, "identity", a.trailer["grpc-accept-encoding"])
			}
			p.lives()
		})
	}
}

// TestContentLength: DATA must have the announced length.
func TestContentLength(t *testing.T) {
	v := serve(t, Options{})
	for name, c := range map[string]struct {
		length string
		ok     bool
	}{
		"right": {"8", true}, "too long": {"7", false}, "too short": {"9", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := v.connect()
			p.t = t
			id := p.open(hold, "content-length", c.length)
			require.NoError(t, p.fr.WriteData(id, true, framed([]byte("abc"))))
			a := p.answer(id)
			if c.ok {
				require.Equal(t, "0", a.trailer["grpc-status"])
			} else {
				require.Equal(t, xhttp2.ErrCodeProtocol, *a.reset)
			}
		})
	}
}

// TestRequestTrailers: a second header block must end the request.
func TestRequestTrailers(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	id := p.open(echo)
	p.send(id, "x")
	require.NoError(t, p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: p.block("some", "trailer"), EndHeaders: true, EndStream: true}))
	require.Equal(t, "0", p.answer(id).trailer["grpc-status"])

	for _, pseudo := range []bool{false, true} {
		id = p.open(echo)
		block := p.block("some", "trailer")
		if pseudo {
			block = p.block(":path", "/x")
		}
		require.NoError(t, p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: pseudo}))
		require.Equal(t, xhttp2.ErrCodeProtocol, *p.answer(id).reset)
	}
	p.lives()
}

// TestHeaderTableChanges: the peer may change the size of its table at any time. Header blocks in
// both directions remain readable.
func TestHeaderTableChanges(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect(xhttp2.Setting{ID: xhttp2.SettingHeaderTableSize, Val: 0})
	p.fr.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(0)
	p.lives()
	for _, size := range []uint32{100, 4096, 1, 0} {
		require.NoError(t, p.fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingHeaderTableSize, Val: size}))
		p.he.SetMaxDynamicTableSize(size) // for requests; announced in the next block
		p.lives()
		p.lives()
	}
	id := p.open("/none")
	require.Equal(t, "12", p.answer(id).trailer["grpc-status"])
}

// TestHeaderTableTooLarge: a table larger than the limit ends the connection.
func TestHeaderTableTooLarge(t *testing.T) {
	p := serve(t, Options{}).connect()
	require.NoError(t, p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x3f, 0xe2, 0x1f}, EndHeaders: true}))
	p.goneWith(xhttp2.ErrCodeCompression)
}

func TestTimeouts(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"1H": time.Hour, "2M": 2 * time.Minute, "3S": 3 * time.Second, "4m": 4 * time.Millisecond,
		"5u": 5 * time.Microsecond, "6n": 6, "00000001S": time.Second, "99999999H": longest, "0n": 0,
	} {
		d, ok := parseTimeout(s)
		require.True(t, ok, s)
		require.Equal(t, want, d, s)
	}
	for _, s := range []string{"", "S", "1", "1s", "-1S", "1.5S", "000000001S", "1Sx", "١S"} {
		_, ok := parseTimeout(s)
		require.False(t, ok, s)
	}
}

// TestDeadline: each stream ends at its deadline, and the connection continues.
func TestDeadline(t *testing.T) {
	v := serve(t, Options{Tick: time.Millisecond})
	p := v.connect()
	for i, id := range []uint32{p.open(hold, "grpc-timeout", "20m"), p.open(hold, "grpc-timeout", "40m")} {
		a := p.answer(id)
		require.Equal(t, "4", a.trailer["grpc-status"])
		eventually(t, "the Receiver has ended", v.call(i).over)
	}
	require.ErrorIs(t, v.call(0).Send([][]byte{{1}}), ErrEnded)
	p.lives()
}
