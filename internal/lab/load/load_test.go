package load

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var host atomic.Value
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host.Store(r.Host)
		if r.URL.Path == "/bad" && n.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer s.Close()
	r, err := Run(t.Context(), Options{URL: s.URL + "/", Host: "server", Connections: 4, Rate: 100, Duration: 200 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, "server", host.Load())
	require.Positive(t, r.Requests)
	require.LessOrEqual(t, r.Requests, int64(20), "those that were not sent in time are left out")
	require.Zero(t, r.Failed)
	require.Positive(t, r.P50)
	require.GreaterOrEqual(t, r.P99, r.P50)
	r, err = Run(t.Context(), Options{URL: s.URL + "/bad", Connections: 2, Rate: 100, Duration: 300 * time.Millisecond})
	require.NoError(t, err)
	require.Positive(t, r.Failed)
}

// TestOpenLoop checks that every request that is due during a stall counts it in its latency.
func TestOpenLoop(t *testing.T) {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 && r.Host == "server" && r.URL.Query().Get("size") == "9" {
			<-time.After(100 * time.Millisecond) // the stall
		}
	}))
	defer s.Close()
	r, err := Run(t.Context(), Options{URL: s.URL + "/?size=9", Host: "server", Connections: 1, Rate: 100, Duration: 200 * time.Millisecond, OpenLoop: true})
	require.NoError(t, err)
	require.EqualValues(t, 20, r.Requests)
	require.Zero(t, r.Failed)
	require.GreaterOrEqual(t, r.Max, 100.0)
	require.Greater(t, r.P90, 50.0, "10 of 20 requests met the stall")
}

func TestRunEnds(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := Run(ctx, Options{URL: s.URL, Connections: 1, Duration: time.Hour})
	require.ErrorIs(t, err, context.Canceled)
}

func TestCheck(t *testing.T) {
	for _, o := range []Options{{}, {URL: "http://a"}, {URL: "http://a", Connections: 1}, {URL: "http://a", Connections: 1, Duration: 1, Rate: -1}} {
		_, err := Run(t.Context(), o)
		require.ErrorContains(t, err, "load: needs")
		_, err = Command(t.Context(), []string{"x"}, o)
		require.ErrorContains(t, err, "load: needs")
	}
	_, err := Run(t.Context(), Options{URL: "http://a", Connections: 1, Duration: 1, OpenLoop: true})
	require.ErrorContains(t, err, "load: an open loop needs a rate")
	_, err = Run(t.Context(), Options{URL: "http://127.0.0.1:1/", Connections: 1, Duration: time.Second})
	require.ErrorContains(t, err, "load on http://127.0.0.1:1/")
}
