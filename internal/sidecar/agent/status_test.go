package agent

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/await"
)

const twoCalls = `# TYPE envoy_istio_requests_total counter
envoy_istio_requests_total{__call="source|http|200||-|a|b|c|d"} 1
envoy_istio_requests_total{__call="source|http|200||-|a|b|c|e"} 1
`

// TestScrapesTakeTurns: whoever asks for metrics and does not take them holds up others, and takes no more memory.
func TestScrapesTakeTurns(t *testing.T) {
	const most, all = 2, 6
	var arrived, running, highest, answered atomic.Int32
	release, over := make(chan struct{}), make(chan struct{})
	turn := inTurns(most)(func(http.ResponseWriter, *http.Request) {
		n := running.Add(1)
		for h := highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
		}
		select {
		case <-release:
		case <-over:
		}
		running.Add(-1)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		turn(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) }) // else that would wait for those who were not released
	var asking sync.WaitGroup
	for range all {
		asking.Go(func() {
			if resp, err := http.Get(server.URL); err == nil {
				answered.Add(1)
				_ = resp.Body.Close()
			}
		})
	}
	require.Eventually(t, func() bool { return arrived.Load() == all && running.Load() >= most }, time.Minute, time.Millisecond)
	for range all {
		await.To(t, release, struct{}{})
	}
	await.End(t, asking.Wait)
	require.EqualValues(t, all, answered.Load())
	require.EqualValues(t, most, highest.Load())
	require.NotZero(t, newStatusServer(nil).WriteTimeout, "who does not read is not waited for forever")
}

// TestSeriesOfWholeScrapes: only what is all of Envoy's metrics tells how many series it has.
func TestSeriesOfWholeScrapes(t *testing.T) {
	var fails atomic.Bool
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case fails.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.RawQuery == "":
			_, _ = io.WriteString(w, twoCalls)
		}
	}))
	t.Cleanup(admin.Close)
	for name, of := range map[string]func(*agent) http.HandlerFunc{
		"merged":        func(a *agent) http.HandlerFunc { return a.handleMetrics },
		"Envoy's alone": func(a *agent) http.HandlerFunc { return a.handleEnvoyMetrics },
	} {
		t.Run(name, func(t *testing.T) {
			fails.Store(false)
			a := &agent{
				settings: &settings{log: slog.New(slog.DiscardHandler)},
				admin:    envoy.NewAdmin(strings.TrimPrefix(admin.URL, "http://")), metrics: newMetrics(),
			}
			t.Cleanup(a.admin.Close)
			scrape := func(url string) {
				of(a)(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, url, http.NoBody))
			}
			series := func() float64 { return testutil.ToFloat64(a.metrics.series.WithLabelValues("source")) }
			scrape("/")
			require.InDelta(t, 2, series(), 0)
			scrape("/?filter=server")
			require.InDelta(t, 2, series(), 0, "a query chooses some")
			fails.Store(true)
			scrape("/")
			require.InDelta(t, 2, series(), 0, "there were none to be had")
		})
	}
}
