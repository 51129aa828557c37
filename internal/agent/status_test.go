package agent

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/envoy"
)

const twoCalls = `# TYPE envoy_istio_requests_total counter
envoy_istio_requests_total{__call="source|http|200||-|a|b|c|d"} 1
envoy_istio_requests_total{__call="source|http|200||-|a|b|c|e"} 1
`

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
