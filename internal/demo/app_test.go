package demo

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// sidecar replaces the sidecar of a workload: it answers for the services that the application calls.
type sidecar struct {
	*httptest.Server
	mu    sync.Mutex // guards calls
	calls []http.Header
}

func newSidecar(t *testing.T, answers map[string]string) *sidecar {
	t.Helper()
	s := &sidecar{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls = append(s.calls, r.Header.Clone())
		s.mu.Unlock()
		body, ok := answers[r.Host]
		if !ok {
			http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sidecar) address() string { return strings.TrimPrefix(s.URL, "http://") }

// serve starts an application and returns its URL.
func serve(t *testing.T, w Workload, s *sidecar) string {
	t.Helper()
	transport := sidecarTransport(s.address())
	t.Cleanup(transport.CloseIdleConnections)
	app := App{Workload: w, Log: io.Discard}
	server := httptest.NewServer(app.handler(&http.Client{Transport: transport}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestAppCallsThroughSidecar(t *testing.T) {
	s := newSidecar(t, map[string]string{
		catalog: `{"service":"catalog","version":"v1","instance":"catalog-1"}`,
		cart:    `{"service":"cart","version":"v1","instance":"cart-1"}`,
		reviews: `{"service":"reviews","version":"v2","instance":"reviews-v2-1"}`,
	})
	url := serve(t, Workload{Name: "frontend-1", App: frontend, Version: "v1"}, s)
	a, status, err := get(t.Context(), http.DefaultClient, url, http.Header{"X-Demo": {"abort"}, "X-Other": {"no"}})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "frontend-1", a.Instance)
	require.Len(t, a.Calls, 3)
	require.Equal(t, "reviews-v2-1", a.Calls[2].Instance)
	require.Len(t, s.calls, 3)
	require.Equal(t, "abort", s.calls[0].Get(markHeader), "the mark is forwarded")
	require.Empty(t, s.calls[0].Get("x-other"))
	http.DefaultClient.CloseIdleConnections()
}

func TestAppReportsFailedCall(t *testing.T) {
	s := newSidecar(t, nil)
	url := serve(t, Workload{Name: "reviews-v2-1", App: reviews, Version: "v2"}, s)
	_, status, err := get(t.Context(), http.DefaultClient, url, nil)
	require.Equal(t, http.StatusBadGateway, status)
	require.ErrorContains(t, err, "502 reviews-v2-1 calls ratings: 503 no healthy upstream")
	http.DefaultClient.CloseIdleConnections()
}

func TestAppStreams(t *testing.T) {
	s := newSidecar(t, nil)
	url := serve(t, Workload{Name: "ratings-1", App: ratings}, s)
	resp, err := http.Get(url + "/stream?n=3&ms=1")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	require.NoError(t, err)
	require.Equal(t, "ratings-1 0\nratings-1 1\nratings-1 2\n", string(body))
	http.DefaultClient.CloseIdleConnections()
}

func TestAppEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- App{Listen: "127.0.0.1:0", Log: io.Discard}.Run(ctx) }()
	cancel()
	require.NoError(t, <-ended)
}

func TestLoadCountsByStartOfRequests(t *testing.T) {
	s := newSidecar(t, map[string]string{frontend: `{"service":"frontend","version":"v1","instance":"frontend-1"}`})
	load := StartLoad(s.address(), frontPage, 500)
	defer load.Stop()
	enough := func() bool { return load.Counts().Requests >= 20 }
	require.Eventually(t, enough, time.Minute, time.Millisecond)
	first := load.Next()
	require.GreaterOrEqual(t, first.Requests, 20)
	require.Zero(t, first.Failed)
	require.Equal(t, first.Requests, first.Instances["frontend-1"])
	require.Eventually(t, enough, time.Minute, time.Millisecond)

	load.Pause()
	load.Next()
	s.mu.Lock()
	before := len(s.calls)
	s.mu.Unlock()
	load.Resume()
	require.Eventually(t, enough, time.Minute, time.Millisecond)
	second := load.Next()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.GreaterOrEqual(t, len(s.calls), before+second.Requests)
}

func TestLoadRecordsFailures(t *testing.T) {
	s := newSidecar(t, nil)
	load := StartLoad(s.address(), frontPage, 500)
	defer load.Stop()
	require.Eventually(t, func() bool { return load.Counts().Failed > 3 }, time.Minute, time.Millisecond)
	c := load.Next()
	require.Equal(t, c.Requests, c.Failed)
	require.Equal(t, c.Requests, c.Statuses[http.StatusServiceUnavailable])
	require.Contains(t, c.reasons()[0], "503 no healthy upstream")
}
