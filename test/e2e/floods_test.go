package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer2 is a client that writes any frames of HTTP/2 to a guarded workload's sidecar.
type peer2 struct {
	t       *testing.T
	conn    net.Conn
	out     *bufio.Writer
	fr      *xhttp2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
	stream  uint32
}

func (g *guarded) dial2(t *testing.T) *peer2 {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", g.ip, guardedHTTP))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096)) // for answers that the client does not read
	require.NoError(t, conn.SetDeadline(time.Now().Add(callLimit)))
	p := &peer2{t: t, conn: conn, out: bufio.NewWriter(conn)}
	p.fr = xhttp2.NewFramer(p.out, conn)
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.encoder = hpack.NewEncoder(&p.block)
	_, err = io.WriteString(p.out, xhttp2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, p.fr.WriteSettings())
	require.NoError(t, p.out.Flush())
	return p
}

// get begins a request; headers are pairs. Errors of writes are ignored: the sidecar may have closed the connection.
func (p *peer2) get(ends bool, headers ...string) uint32 {
	return p.begin(ends, append([]string{":method", "GET", ":scheme", "http", ":authority", "web", ":path", "/"}, headers...)...)
}

func (p *peer2) begin(ends bool, headers ...string) uint32 {
	p.block.Reset()
	for i := 0; i+1 < len(headers); i += 2 {
		require.NoError(p.t, p.encoder.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1]}))
	}
	if p.stream == 0 {
		p.stream = 1
	} else {
		p.stream += 2
	}
	const most = 16 << 10 // of a frame
	rest := p.block.Bytes()
	for first := true; first || len(rest) > 0; first = false {
		part := rest[:min(most, len(rest))]
		rest = rest[len(part):]
		if first {
			_ = p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: p.stream, BlockFragment: part, EndStream: ends, EndHeaders: len(rest) == 0})
			continue
		}
		_ = p.fr.WriteContinuation(p.stream, len(rest) == 0, part)
	}
	return p.stream
}

// outcome reads until the connection ends ("closed"), or a request is answered or reset.
func (p *peer2) outcome() string {
	if p.out.Flush() != nil {
		return "closed"
	}
	for {
		f, err := p.fr.ReadFrame()
		switch f := f.(type) {
		case *xhttp2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *xhttp2.RSTStreamFrame:
			return "reset"
		}
		if netErr, ok := err.(net.Error); ok && netErr.Timeout() { //nolint:errorlint // of the connection itself
			return "nothing"
		}
		if err != nil {
			return "closed"
		}
	}
}

// TestFloodsOfRequests tries what advisories of Envoy found to exhaust its memory or CPU. Envoy's limits are in force with the
// sidecar's configuration: it ends the connection, or refuses the request.
func TestFloodsOfRequests(t *testing.T) {
	g := startGuarded(t)
	g.requireStatus(200, "GET", "/")
	repeat := func(n int, name, value string) []string {
		var out []string
		for range n {
			out = append(out, name, value)
		}
		return out
	}
	long := strings.Repeat("x", 4000) // fits the dynamic table, so that each repetition takes one byte
	for name, c := range map[string]struct {
		n     int
		write func(p *peer2, n int)
	}{
		"streams that are reset at once (CVE-2023-44487)": {2000, func(p *peer2, n int) {
			for range n {
				_ = p.fr.WriteRSTStream(p.get(true), xhttp2.ErrCodeCancel)
			}
		}},
		"empty frames (CVE-2019-9518)": {1000, func(p *peer2, n int) {
			id := p.get(false)
			for range n {
				_ = p.fr.WriteData(id, false, nil)
			}
		}},
		"priorities (CVE-2019-9513)": {10000, func(p *peer2, n int) {
			for range n {
				_ = p.fr.WritePriority(1, xhttp2.PriorityParam{Weight: 1})
			}
		}},
		"window updates (CVE-2019-9511)": {10000, func(p *peer2, n int) {
			for range n {
				_ = p.fr.WriteWindowUpdate(0, 1)
			}
		}},
		"pings whose answers are not read (CVE-2019-9512)": {2000000, func(p *peer2, n int) {
			for range n {
				if p.fr.WritePing(false, [8]byte{}) != nil {
					break
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			few := g.dial2(t)
			c.write(few, 1)
			few.get(true)
			require.Equal(t, "200", few.outcome(), "one is served")
			p := g.dial2(t)
			c.write(p, c.n)
			require.Equal(t, "closed", p.outcome())
			require.Equal(t, []int{200}, g.raw("GET / HTTP/1.1\n"+closing), "the next client")
		})
	}
	for name, write := range map[string]func(*peer2){
		"continuations without an end (CVE-2024-27919, CVE-2024-30255)": func(p *peer2) {
			_ = p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x84}, EndStream: true}) // GET /
			for range 2000 {
				_ = p.fr.WriteContinuation(1, false, []byte{0, 1, 'x', 1, 'y'}) // x: y
			}
		},
		"many headers (CVE-2019-15226)": func(p *peer2) {
			p.get(true, repeat(101, "x-a", "1")...)
		},
		"a long header (CVE-2020-12605)": func(p *peer2) {
			p.get(true, "x-a", strings.Repeat("x", 61<<10))
		},
		"a long path (CVE-2020-12605)": func(p *peer2) {
			p.begin(true, ":method", "GET", ":scheme", "http", ":authority", "web", ":path", "/"+strings.Repeat("x", 61<<10))
		},
		"cookies by index (CVE-2026-47774)": func(p *peer2) {
			p.get(true, repeat(50, "cookie", long)...)
		},
		"hosts by index (CVE-2026-73550)": func(p *peer2) {
			p.begin(true, append([]string{":method", "GET", ":scheme", "http", ":authority", long, ":path", "/"}, repeat(50, "host", long)...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := g.dial2(t)
			write(p)
			require.Contains(t, []string{"431", "reset", "closed"}, p.outcome())
			require.Equal(t, []int{200}, g.raw("GET / HTTP/1.1\n"+closing), "the next client")
		})
	}
}

// allowConnect lets the sidecar take upgrades by HTTP/2, as it does from other sidecars, with mutual TLS.
const allowConnect = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: connect, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  configPatches:
  - applyTo: NETWORK_FILTER
    match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: MERGE
      value:
        name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          http2_protocol_options: {allow_connect: true}`

// TestUpgradesByHTTP2SmuggleNothing checks that bytes that follow an upgrade by HTTP/2, before the server has accepted
// it, do not reach a server that speaks HTTP/1.1 as another request (CVE-2026-73548, CVE-2025-64763).
func TestUpgradesByHTTP2SmuggleNothing(t *testing.T) {
	g := startGuarded(t)
	g.given(allowConnect, authorization("paths", `{action: DENY, rules: [{to: [{operation: {paths: ["/admin*"]}}]}]}`))
	g.requireStatus(403, "GET", "/admin")
	for protocol, want := range map[string]struct {
		status  string
		arrives bool
	}{
		"websocket": {"200", true}, // the application does not switch protocols
		"other":     {"403", false},
	} {
		t.Run(protocol, func(t *testing.T) {
			before := len(g.web.requests())
			p := g.dial2(t)
			id := p.begin(false, ":method", "CONNECT", ":protocol", protocol, ":scheme", "http", ":authority", "web", ":path", "/upgrade", "sec-websocket-version", "13")
			_ = p.fr.WriteData(id, false, []byte("GET /admin HTTP/1.1\r\nHost: web\r\n\r\n"))
			got := p.outcome()
			require.Equal(t, want.status, got)
			require.Equal(t, want.arrives, len(g.web.requests()) > before, "the upgrade reaches the application")
			require.Equal(t, []int{200}, g.raw("GET / HTTP/1.1\n"+closing))
			g.requireNothingAt("/admin")
		})
	}
}
