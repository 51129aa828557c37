package kube

import (
	"context"
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

	mu      sync.Mutex            // guards the rest, also while it connects
	conn    httpstream.Connection // to the API server; nil: none yet
	request int                   // number of the last connection to the Pod
}

// UnreachableError is the kubelet's reason why the port of a Pod cannot be reached.
type UnreachableError string

func (e UnreachableError) Error() string { return string(e) }

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

// Dial connects to the Pod's port. A port where nothing listens shows in the first Read.
func (t *Tunnel) Dial(ctx context.Context) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() { // client-go's dialers take no context
		conn, err := t.open()
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// open opens a pair of streams: the connection's bytes, and errors of the kubelet.
func (t *Tunnel) open() (net.Conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.connect(); err != nil {
		return nil, err
	}
	t.request++
	headers := http.Header{}
	headers.Set(corev1.PortHeader, t.port)
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(t.request))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := t.conn.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = problems.Close() // only the kubelet writes
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := t.conn.CreateStream(headers)
	if err != nil {
		t.conn.RemoveStreams(problems)
		return nil, err
	}
	c := &tunnelConn{Stream: data, over: t.conn, problems: problems, failed: make(chan struct{})}
	go c.readProblem()
	return c, nil
}

// connect connects to the API server, unless a connection is alive.
func (t *Tunnel) connect() error {
	if t.conn != nil {
		select {
		case <-t.conn.CloseChan():
		default:
			return nil
		}
	}
	conn, _, err := t.dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return err
	}
	t.conn = conn
	return nil
}

// Close ends the tunnel and its connections.
func (t *Tunnel) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		_ = t.conn.Close() // nothing is lost
		t.conn = nil
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
