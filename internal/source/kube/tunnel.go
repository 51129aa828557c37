package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Tunnel carries connections to a port of a Pod through the API server, as `kubectl port-forward` does, without a port on
// this machine. Its user needs the right to create pods/portforward. It is safe for concurrent use.
type Tunnel struct {
	dialer httpstream.Dialer
	port   string

	mu      sync.Mutex // guards the rest
	last    *attempt   // to connect to the API server; nil: none yet
	closed  bool
	request int // number of the last connection to the Pod
}

// attempt is one attempt to connect to the API server. All Dials share it.
type attempt struct {
	done chan struct{} // closed when the rest is final
	conn httpstream.Connection
	err  error
}

// alive reports whether an attempt may still succeed, or its connection works.
func (a *attempt) alive() bool {
	select {
	case <-a.done:
	default:
		return true
	}
	if a.err != nil {
		return false
	}
	select {
	case <-a.conn.CloseChan():
		return false
	default:
		return true
	}
}

// UnreachableError is the kubelet's reason why the port of a Pod cannot be reached.
type UnreachableError string

func (e UnreachableError) Error() string { return string(e) }

// GrantRights is what to do if a control plane lacks a right that its roles have.
const GrantRights = "update its roles with 'moonsail upgrade', 'helm upgrade' or 'moonsail manifest'"

// IsForbidden reports whether the API server refused a request for lack of rights.
func IsForbidden(err error) bool { return apierrors.IsForbidden(err) }

// Tunnel returns a tunnel to a port of a Pod. It connects with the first Dial.
func (c *Client) Tunnel(namespace, pod string, port int32) (*Tunnel, error) {
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, err
	}
	target := base.JoinPath("api/v1/namespaces", namespace, "pods", pod, "portforward")
	// API servers before 1.31 know only SPDY, which newer ones serve too.
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, c.config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	dialer := portforward.NewFallbackDialerForStreaming(websocket, spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target),
		func(err error) bool { return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) })
	return &Tunnel{dialer: dialer, port: strconv.Itoa(int(port))}, nil
}

// connectTimeout bounds an attempt to connect to the API server.
const connectTimeout = 30 * time.Second

// Dial connects to the Pod's port. A port where nothing listens shows in the first Read.
func (t *Tunnel) Dial(ctx context.Context) (net.Conn, error) {
	over, err := t.connection(ctx)
	if err != nil {
		return nil, err
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() { // client-go's streams take no context; they end with their connection
		conn, err := t.open(over)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				_ = r.conn.Close() // nobody uses it
			}
		}()
		return nil, ctx.Err()
	}
}

// connection returns the connection to the API server. It connects, unless a connection is alive.
func (t *Tunnel) connection(ctx context.Context) (httpstream.Connection, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, net.ErrClosed
	}
	a := t.last
	if a == nil || !a.alive() {
		a = &attempt{done: make(chan struct{})}
		t.last = a
		go t.connect(a)
	}
	t.mu.Unlock()
	limit := time.NewTimer(connectTimeout)
	defer limit.Stop()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-limit.C:
		return nil, fmt.Errorf("no connection to the API server after %s", connectTimeout)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connect makes an attempt. client-go's dialers take no context, so that it may end after the tunnel: its connection is closed
// then.
func (t *Tunnel) connect(a *attempt) {
	conn, _, err := t.dialer.Dial(portforward.PortForwardProtocolV1Name)
	t.mu.Lock()
	late := t.closed
	if a.conn, a.err = conn, err; late {
		a.conn, a.err = nil, net.ErrClosed
	}
	close(a.done)
	t.mu.Unlock()
	if late && err == nil {
		_ = conn.Close() // nothing is lost
	}
}

// open opens a pair of streams: the connection's bytes, and errors of the kubelet.
func (t *Tunnel) open(over httpstream.Connection) (net.Conn, error) {
	t.mu.Lock()
	t.request++
	request := t.request
	t.mu.Unlock()
	headers := http.Header{}
	headers.Set(corev1.PortHeader, t.port)
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(request))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := over.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = problems.Close() // only the kubelet writes
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := over.CreateStream(headers)
	if err != nil {
		over.RemoveStreams(problems)
		return nil, err
	}
	c := &tunnelConn{Stream: data, over: over, problems: problems, failed: make(chan struct{})}
	go c.readProblem()
	return c, nil
}

// Close ends the tunnel and its connections. It does not wait for an attempt to connect.
func (t *Tunnel) Close() {
	t.mu.Lock()
	t.closed = true
	a := t.last
	t.mu.Unlock()
	if a == nil {
		return
	}
	select {
	case <-a.done:
		if a.err == nil {
			_ = a.conn.Close() // nothing is lost
		}
	default: // connect closes it
	}
}

// tunnelConn is a connection through a tunnel.
type tunnelConn struct {
	httpstream.Stream
	over     httpstream.Connection
	problems httpstream.Stream

	failed  chan struct{} // closed when problem is final
	problem string        // the kubelet's error; empty: none
}

// problemWait is how long a Read that fails waits for the reason.
const problemWait = time.Second

func (c *tunnelConn) readProblem() {
	text, _ := io.ReadAll(io.LimitReader(c.problems, 1<<16)) // an error ends the connection too
	c.problem = string(text)
	close(c.failed)
	if c.problem != "" {
		_ = c.Stream.Reset() // ends a Read
	}
}

// Read returns an UnreachableError if the port cannot be reached.
func (c *tunnelConn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if n > 0 || err == nil {
		return n, err
	}
	select {
	case <-c.failed:
		if c.problem != "" {
			return 0, UnreachableError(c.problem)
		}
	case <-time.After(problemWait):
	}
	return n, err
}

// CloseWrite ends what this side sends.
func (c *tunnelConn) CloseWrite() error { return c.Stream.Close() }

// Close ends the connection in both directions.
func (c *tunnelConn) Close() error {
	err := c.Stream.Reset()
	_ = c.problems.Reset() // it carries nothing any more
	c.over.RemoveStreams(c.Stream, c.problems)
	return err
}

// tunnelAddr is the address of both ends, which a tunnel does not know.
type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "portforward" }
func (tunnelAddr) String() string  { return "portforward" }

func (*tunnelConn) LocalAddr() net.Addr  { return tunnelAddr{} }
func (*tunnelConn) RemoteAddr() net.Addr { return tunnelAddr{} }

func (*tunnelConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (*tunnelConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (*tunnelConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
