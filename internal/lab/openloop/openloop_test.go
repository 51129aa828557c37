package openloop

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var hosts sync.Map
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts.Store(r.Host+r.RequestURI, true)
		if n.Add(1)%10 == 0 {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer s.Close()
	address := strings.TrimPrefix(s.URL, "http://")
	out, err := (&Load{Address: address, Hosts: []string{"a", "b"}, Conns: 3, Rate: 500}).Run(t.Context(), 200*time.Millisecond)
	require.NoError(t, err)
	require.Len(t, out.Latencies, 100)
	require.Equal(t, 10, out.Failed)
	for _, h := range []string{"a/", "b/"} {
		_, ok := hosts.Load(h)
		require.True(t, ok, h)
	}
	out, err = (&Load{Address: address, Hosts: []string{"a"}, Conns: 2}).Run(t.Context(), 500*time.Millisecond)
	require.NoError(t, err)
	require.NotEmpty(t, out.Latencies, "as fast as answers come")
	_, err = (&Load{Address: address, Hosts: []string{"c"}, Path: "/?size=7", Conns: 1, Rate: 100}).Run(t.Context(), 20*time.Millisecond)
	require.NoError(t, err)
	_, ok := hosts.Load("c/?size=7")
	require.True(t, ok)
}

// TestOpen checks that requests are sent on time while none is answered, and that each latency counts from the time at
// which its request was due.
func TestOpen(t *testing.T) {
	const requests = 10
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	served := make(chan error, 1)
	go func() { served <- answerAtOnce(ln, requests) }()
	out, err := (&Load{Address: ln.Addr().String(), Hosts: []string{"a"}, Conns: 1, Rate: 100}).Run(t.Context(), 100*time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, await.From(t, served))
	require.Len(t, out.Latencies, requests)
	require.Greater(t, out.Latencies[0], out.Latencies[requests-1], "all were answered together")
}

// answerAtOnce answers when all requests have arrived.
func answerAtOnce(ln net.Listener, requests int) error {
	conn, err := ln.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for range requests {
		if _, err := http.ReadRequest(r); err != nil {
			return err
		}
	}
	_, err = conn.Write([]byte(strings.Repeat("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", requests)))
	return err
}

func TestRunEnds(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	for _, rate := range []int{0, 100} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err := (&Load{Address: strings.TrimPrefix(s.URL, "http://"), Hosts: []string{"a"}, Conns: 1, Rate: rate}).Run(ctx, time.Hour)
		require.Error(t, err)
	}
	_, err := (&Load{Address: "127.0.0.1:1", Conns: 1, Rate: 1}).Run(t.Context(), time.Second)
	require.ErrorContains(t, err, "load: ")
}
