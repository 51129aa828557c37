package live

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

// seen is an echo server's description of a request.
type seen struct {
	Cluster   string
	Path      string
	Authority string
	Headers   map[string]string // lower-case names
	Tunnel    string            // the request that opened a tunnel for the connection
}

// echoHeader marks responses of echo servers.
const echoHeader = "X-Echo-Cluster"

// upstreams are the echo servers of all clusters, one address each.
type upstreams struct {
	ports     map[string]uint32
	listeners []net.Listener
	running   sync.WaitGroup
}

func startUpstreams(clusters []string) (*upstreams, error) {
	u := &upstreams{ports: map[string]uint32{}}
	for _, name := range clusters {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			u.stop()
			return nil, err
		}
		u.listeners = append(u.listeners, l)
		u.ports[name] = uint32(l.Addr().(*net.TCPAddr).Port)
		u.serve(name, l)
	}
	return u, nil
}

// serve answers HTTP and other bytes on one listener until it is closed.
func (u *upstreams) serve(cluster string, l net.Listener) {
	web := make(chanListener)
	server := &http.Server{Handler: echo(cluster), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	u.running.Go(func() { _ = server.Serve(web) })
	u.running.Go(func() {
		var open sync.WaitGroup
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open.Go(func() { dispatch(cluster, c, web) })
		}
		open.Wait() // Envoy is gone by now, and its connections with it
		close(web)
		_ = server.Close()
	})
}

func (u *upstreams) stop() {
	for _, l := range u.listeners {
		_ = l.Close()
	}
	u.running.Wait()
}

// dispatch decides by the first byte: HTTP starts with a letter, TLS does not, and the tests' bytes start with a digit.
// Silent clients cannot get an HTTP response either.
func dispatch(cluster string, c net.Conn, web chanListener) {
	b := bufio.NewReader(c)
	first, err := b.Peek(1)
	if err == nil && first[0] >= 'A' && first[0] <= 'Z' {
		web <- peeked{c, b}
		return
	}
	_, _ = fmt.Fprintf(c, "%s\n", cluster)
	_ = c.Close()
}

func echo(cluster string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			tunnel(w, cluster, r.Host)
			return
		}
		s := seen{Cluster: cluster, Path: r.RequestURI, Authority: r.Host, Headers: map[string]string{}}
		for k, v := range r.Header {
			s.Headers[strings.ToLower(k)] = strings.Join(v, ",")
		}
		w.Header().Set(echoHeader, cluster)
		w.Header().Set("Server", "echo")
		_ = json.NewEncoder(w).Encode(s)
	})
}

// tunnel accepts a tunnel, and sends where it leads.
func tunnel(w http.ResponseWriter, cluster, host string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n\r\n%s\tCONNECT %s\n", cluster, host)
	_ = conn.Close()
}

// peeked is a connection whose first bytes have been read.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// chanListener accepts the connections that are sent to it.
type chanListener chan net.Conn

// Accept waits for a connection.
func (l chanListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, errors.New("closed")
}

// Close does nothing: the sender of connections closes the channel.
func (l chanListener) Close() error { return nil }

// Addr has no meaning.
func (l chanListener) Addr() net.Addr { return &net.TCPAddr{} }
