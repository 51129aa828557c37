package e2e

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// backend is an application that records the requests that reach it. It answers as the headers of a call request: with
// the status of x-answer, and with x-hang only once release is closed or the caller gives up.
type backend struct {
	app
	tls     *tls.Config
	broken  bool // answers by 500
	release chan struct{}

	mu          sync.Mutex // guards the fields below
	seen        []seen
	connections int
}

// seen is a request that reached a backend.
type seen struct {
	method, host, path string
	header             http.Header
	major              int    // version of HTTP
	sni                string // of the connection's TLS
	peer               string // the URI of the caller's certificate
}

// startBackend serves until the test ends.
func startBackend(t *testing.T, name, version string, options ...func(*backend)) *backend {
	t.Helper()
	b := &backend{app: app{name: name, version: version, ip: ownIP()}, release: make(chan struct{})}
	for _, o := range options {
		o(b)
	}
	ln := b.listen(t)
	if b.tls != nil {
		ln = tls.NewListener(ln, b.tls)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	serveHTTP(t, ln, &http.Server{ //nolint:gosec // of a test
		Handler: http.HandlerFunc(b.answer), Protocols: protocols, ConnState: b.connection,
		ErrorLog: log.New(io.Discard, "", 0), // of connections that the sidecar refuses
	})
	return b
}

func (b *backend) connection(_ net.Conn, s http.ConnState) {
	if s != http.StateNew {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connections++
}

func (b *backend) answer(w http.ResponseWriter, r *http.Request) {
	b.remember(r)
	if r.Header.Get("X-Hang") != "" {
		select {
		case <-b.release:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("X-Backend", b.name)
	if name := r.Header.Get("X-Name"); name != "" {
		w.Header()[name] = []string{b.name}
	}
	if status, err := strconv.Atoi(r.Header.Get("X-Answer")); err == nil {
		w.WriteHeader(status)
	} else if b.broken {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = io.WriteString(w, b.name+"-"+b.version)
}

func (b *backend) remember(r *http.Request) {
	s := seen{method: r.Method, host: r.Host, path: r.RequestURI, header: r.Header.Clone(), major: r.ProtoMajor}
	if r.TLS != nil {
		s.sni = r.TLS.ServerName
		if c := r.TLS.PeerCertificates; len(c) > 0 && len(c[0].URIs) > 0 {
			s.peer = c[0].URIs[0].String()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, s)
}

// requests returns those that reached the backend.
func (b *backend) requests() []seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen)
}

// last returns the newest request; there must be one.
func (b *backend) last(t *testing.T) seen {
	t.Helper()
	all := b.requests()
	require.NotEmpty(t, all, "nothing reached %s", b.name)
	return all[len(all)-1]
}

func (b *backend) connectionCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.connections
}

// startGreeter starts an application that sends its version to every client that connects, and closes.
func startGreeter(t *testing.T, name, version string) *app {
	t.Helper()
	a := &app{name: name, version: version, ip: ownIP()}
	ln := a.listen(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, version)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
	return a
}

// overheard is a listener that records all bytes of its connections.
type overheard struct {
	net.Listener

	mu   sync.Mutex // guards text
	text []byte
}

// Accept implements net.Listener.
func (o *overheard) Accept() (net.Conn, error) {
	conn, err := o.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &overheardConn{conn, o}, nil
}

// said returns all bytes so far.
func (o *overheard) said() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

type overheardConn struct {
	net.Conn
	by *overheard
}

func (c *overheardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.by.mu.Lock()
	defer c.by.mu.Unlock()
	c.by.text = append(c.by.text, b[:n]...)
	return n, err
}
