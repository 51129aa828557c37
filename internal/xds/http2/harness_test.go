package http2

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) {
	if crowdWanted() {
		crowd()
		return
	}
	goleak.VerifyTestMain(m)
}

// testTimeout is how long a test waits for something that must happen.
const testTimeout = time.Minute

// Methods of the test server.
const (
	echo = "/test.Service/Echo" // returns each message
	fail = "/test.Service/Fail" // refuses each message with the status that it contains
	hold = "/test.Service/Hold" // keeps messages, and the test sends
)

// service is a server on a real connection.
type service struct {
	t    *testing.T
	s    *Server
	addr string

	mu    sync.Mutex // guards calls
	calls []*call
}

// call is the Receiver of all methods.
type call struct {
	*Stream
	mu       sync.Mutex // guards what follows
	received [][]byte
	ended    int
}

func (c *call) Receive(b []byte) error {
	c.mu.Lock()
	c.received = append(c.received, bytes.Clone(b))
	c.mu.Unlock()
	switch c.Path() {
	case echo:
		return c.Send([][]byte{bytes.Clone(b)})
	case fail:
		if len(b) == 0 || string(b) == "plain" {
			return errors.New("it failed: 100% ☹")
		}
		return &Status{Code: Code(b[0]), Message: string(b[1:])}
	}
	return nil
}

// IsInline leaves all messages to loops, except "slow".
func (c *call) IsInline(b []byte) bool { return string(b) != "slow" }

func (c *call) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
}

func (c *call) got() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.received)
}

func (c *call) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended == 1
}

func serve(t *testing.T, o Options, more ...map[string]Handler) *service {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveOn(t, l, o, more...)
}

// serveOn is serve on a given listener.
func serveOn(t *testing.T, l net.Listener, o Options, more ...map[string]Handler) *service {
	t.Helper()
	v := newService(t, o, more...)
	v.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- v.s.Serve(l) }()
	t.Cleanup(func() {
		await.End(t, v.s.Stop)
		require.ErrorIs(t, await.From(t, served), ErrStopped)
	})
	return v
}

func newService(t *testing.T, o Options, more ...map[string]Handler) *service {
	v := &service{t: t}
	begin := func(st *Stream) Receiver {
		c := &call{Stream: st}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.calls = append(v.calls, c)
		return c
	}
	methods := map[string]Handler{echo: begin, fail: begin, hold: begin}
	for _, m := range more {
		maps.Copy(methods, m)
	}
	v.s = New(methods, o)
	return v
}

// call returns the n-th call, and waits for it.
func (v *service) call(n int) *call {
	v.t.Helper()
	eventually(v.t, "the call has begun", func() bool { return v.begun() > n })
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls[n]
}

// begun returns how many calls have begun.
func (v *service) begun() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.calls)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, testTimeout, time.Millisecond, what)
}
