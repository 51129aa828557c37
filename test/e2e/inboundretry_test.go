package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/halt"
)

// Ports of the sidecar of a served.
const (
	servedHTTP = 18080
	servedGRPC = 18081
)

// served is a workload with a sidecar whose application the test controls step by step.
type served struct {
	*client
	app net.Listener

	requests atomic.Int64      // that the application has read
	open     chan *net.TCPConn // connections on which the application has answered
}

// startServed runs the sidecar, and an application that answers each request and passes the connection to the test.
func startServed(t *testing.T, config ...string) *served {
	t.Helper()
	s := &served{client: newClient("served"), open: make(chan *net.TCPConn, 16)}
	var err error
	s.app, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(s.ip, "0"))
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := s.app.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serve(conn.(*net.TCPConn)) }) //nolint:forcetypeassert // of a TCP listener
		}
	})
	m := startMesh(t, server.RoutesAuto, append(config, s.document())...)
	s.start(t, m, false)
	t.Cleanup(func() { // before the Envoy ends, whose connections the application waits for
		_ = s.app.Close()
		s.process.Kill()
		serving.Wait()
	})
	return s
}

func (s *served) serve(conn *net.TCPConn) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s.requests.Add(1)
		if r.Header.Get("X-Reset") != "" {
			_ = conn.SetLinger(0)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		s.open <- conn
	}
}

// document returns the Sidecar: requests and gRPC lead to the same application.
func (s *served) document() string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: served, namespace: shop}
spec:
  workloadSelector: {labels: {app: served}}
  ingress:
  - {port: {number: %d, name: http, protocol: HTTP}, captureMode: NONE, defaultEndpoint: "0.0.0.0:%d"}
  - {port: {number: %d, name: grpc, protocol: GRPC}, captureMode: NONE, defaultEndpoint: "0.0.0.0:%[2]d"}
  egress: [{hosts: ["./*"]}]`, servedHTTP, s.app.Addr().(*net.TCPAddr).Port, servedGRPC) //nolint:forcetypeassert // of a TCP listener
}

// caller is a connection to the sidecar.
type caller struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (s *served) dial(t *testing.T, port int) *caller {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(s.ip, strconv.Itoa(port)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &caller{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// ask sends a request that must not be repeated.
func (c *caller) ask(header string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, "POST / HTTP/1.1\r\nHost: served\r\nContent-Length: 2\r\n"+header+"\r\nhi")
	require.NoError(c.t, err)
}

func (c *caller) answer() int {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(c.t, err)
	return resp.StatusCode
}

func (c *caller) call(header string) int {
	c.t.Helper()
	c.ask(header)
	return c.answer()
}

// tries returns how often the sidecar has failed to connect, and how often it has repeated requests, for a port.
func (s *served) tries(t *testing.T, port int) [2]uint64 {
	t.Helper()
	of := fmt.Sprintf(`^cluster\.inbound\|%d.*\.`, port)
	return [2]uint64{only(s.stats(t, of+"upstream_cx_connect_fail$")), only(s.stats(t, of+"upstream_rq_retry$"))}
}

// halt stops all of the sidecar's threads, until the test lets it continue.
func (s *served) halt(t *testing.T) {
	t.Helper()
	halt.Process(t, s.process.Pid())
}

// idleEnds makes a call that the sidecar reads before it reads that the application has closed the idle connection on
// which it sends the call.
func (s *served) idleEnds(t *testing.T) int {
	t.Helper()
	c := s.dial(t, servedHTTP)
	require.Equal(t, http.StatusOK, c.call(""))
	idle := await.From(t, s.open)
	eventually(t, "the connection is idle", func() bool {
		return only(s.stats(t, fmt.Sprintf(`^cluster\.inbound\|%d.*\.upstream_rq_active$`, servedHTTP))) == 0
	}, nil)
	s.halt(t)
	c.ask("")
	require.NoError(t, idle.Close())
	require.NoError(t, s.process.Signal(syscall.SIGCONT))
	return c.answer()
}

// TestInboundRetries checks that a request that could not be sent to the application is tried three times in all, as in
// Istio, except on ports of gRPC. A request that was sent is not sent again.
func TestInboundRetries(t *testing.T) {
	s := startServed(t)
	require.Equal(t, http.StatusServiceUnavailable, s.dial(t, servedHTTP).call("X-Reset: yes\r\n"))
	require.EqualValues(t, 1, s.requests.Load())
	require.Equal(t, http.StatusServiceUnavailable, s.idleEnds(t), "Envoy takes as sent what it has encoded")
	require.Equal(t, [2]uint64{0, 0}, s.tries(t, servedHTTP))

	require.NoError(t, s.app.Close())
	for _, port := range []int{servedHTTP, servedGRPC} {
		require.Equal(t, http.StatusServiceUnavailable, s.dial(t, port).call(""))
	}
	require.Equal(t, [2]uint64{3, 2}, s.tries(t, servedHTTP))
	require.Equal(t, [2]uint64{1, 0}, s.tries(t, servedGRPC))
}

// resetsToo repeats requests that may have been sent, too.
const resetsToo = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: resets, namespace: shop}
spec:
  workloadSelector: {labels: {app: served}}
  configPatches:
  - applyTo: HTTP_ROUTE
    match: {context: SIDECAR_INBOUND}
    patch: {operation: MERGE, value: {route: {retry_policy: {retry_on: reset}}}}`

// TestInboundRetriesOfResets checks that, if an EnvoyFilter adds reset, callers notice nothing when an application
// closes a connection just as the sidecar sends a request on it.
func TestInboundRetriesOfResets(t *testing.T) {
	s := startServed(t, resetsToo)
	require.Equal(t, http.StatusOK, s.idleEnds(t))
	require.Equal(t, [2]uint64{0, 1}, s.tries(t, servedHTTP))
}
