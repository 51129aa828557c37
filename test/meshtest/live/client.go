package live

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// patience bounds one call, which normally takes far less.
const patience = time.Minute

// Answer is the response to a client.
type Answer struct {
	Closed   bool
	Status   int
	Location string
	Body     string
	Headers  http.Header
	ALPN     string // of bytes in TLS that Envoy ends
	Seen     *seen  // where an upstream answered
}

// dial connects to where the call would be intercepted, and states its destination.
func dial(ctx context.Context, to string, c simulate.Call) (net.Conn, error) {
	from, err := netip.ParseAddrPort(c.From)
	if err != nil {
		from = netip.MustParseAddrPort("203.0.113.9:40000")
	}
	d := &net.Dialer{}
	if from.Addr().IsLoopback() { // what is compared with the connection's own address, too
		d.LocalAddr = &net.TCPAddr{IP: from.Addr().AsSlice()}
	}
	conn, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	dst, err := netip.ParseAddrPort(c.To)
	if err == nil {
		_, err = io.WriteString(conn, proxyHeader(from, dst))
	}
	return conn, err
}

// proxyHeader states caller and destination in the PROXY protocol, which cannot mix IP families.
func proxyHeader(from, to netip.AddrPort) string {
	family := "TCP4"
	if to.Addr().Is6() {
		family = "TCP6"
		if from.Addr().Is4() {
			from = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::9"), from.Port())
		}
	}
	return fmt.Sprintf("PROXY %s %s %s %d %d\r\n", family, from.Addr(), to.Addr(), from.Port(), to.Port())
}

// call makes one call through the listener at address.
func call(address string, c simulate.Call) (*Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch c.Protocol {
	case simulate.TCP, simulate.TLS, simulate.HTTPS:
		return callBytes(ctx, address, c)
	}
	return callHTTP(ctx, address, c)
}

func callHTTP(ctx context.Context, address string, c simulate.Call) (*Answer, error) {
	t := &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, address, c) },
		Protocols:          new(http.Protocols),
	}
	t.Protocols.SetHTTP1(c.Protocol == "" || c.Protocol == simulate.HTTP)
	t.Protocols.SetUnencryptedHTTP2(c.Protocol == simulate.HTTP2 || c.Protocol == simulate.GRPC)
	return exchange(ctx, c, "http://", t)
}

// exchange makes the call's request, and reads the response.
func exchange(ctx context.Context, c simulate.Call, scheme string, t *http.Transport) (*Answer, error) {
	defer t.CloseIdleConnections()
	req, err := httpRequest(ctx, c, scheme)
	if err != nil {
		return nil, err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return &Answer{Closed: true}, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	a := &Answer{Status: resp.StatusCode, Location: resp.Header.Get("Location"), Body: string(body), Headers: resp.Header}
	if resp.Header.Get(echoHeader) != "" {
		a.Seen = &seen{}
		return a, json.Unmarshal(body, a.Seen)
	}
	return a, nil
}

func httpRequest(ctx context.Context, c simulate.Call, scheme string) (*http.Request, error) {
	method := c.Method
	if method == "" && c.Protocol == simulate.GRPC {
		method = http.MethodPost
	}
	path := c.Path
	if path == "" {
		path = "/"
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+"upstream"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Host = c.Host
	if req.Host == "" {
		req.Host = c.To
	}
	if c.Protocol == simulate.GRPC {
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
	}
	for k, v := range c.Headers {
		req.Header.Set(k, v)
	}
	return req, nil
}

// callBytes sends a TLS hello, plain bytes or nothing, and reads the name of the cluster.
func callBytes(ctx context.Context, address string, c simulate.Call) (*Answer, error) {
	conn, err := dial(ctx, address, c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	switch {
	case c.Protocol != simulate.TCP:
		_, err = conn.Write(hello(c))
	case !c.Silent:
		_, err = conn.Write([]byte("0 bytes that are no protocol\n"))
	default:
		// An upstream that speaks first would do so now. The echo server waits for one byte, which arrives after the
		// listener has stopped waiting.
		time.AfterFunc(2*silence, func() { _, _ = conn.Write([]byte("0")) })
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(conn)
	if name := strings.TrimSpace(string(b)); name != "" {
		cluster, tunnel, _ := strings.Cut(name, "\t")
		return &Answer{Seen: &seen{Cluster: cluster, Tunnel: tunnel}}, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	return &Answer{Closed: true}, nil
}

// hello returns a TLS client's first flight.
func hello(c simulate.Call) []byte {
	r, w := net.Pipe()
	go func() {
		cfg := &tls.Config{ServerName: c.SNI, NextProtos: c.ALPN, InsecureSkipVerify: true} //nolint:gosec // nothing is sent
		_ = tls.Client(w, cfg).Handshake()
	}()
	defer func() { _ = r.Close() }()
	buf := make([]byte, 16<<10)
	n, _ := r.Read(buf)
	return buf[:n]
}
