package scrape

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/callstats"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(int) { http.DefaultClient.CloseIdleConnections() }))
}

const twoCalls = `# TYPE envoy_istio_requests_total counter
envoy_istio_requests_total{__call="source|http|200||-|a|b|c|d"} 1
envoy_istio_requests_total{__call="source|http|200||-|a|b|c|e"} 1
`

// scrapeRequest is a request of Prometheus.
func scrapeRequest(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
}

// TestLimitsConcurrentScrapes checks that clients which do not read their answers cannot make the agent use more memory.
func TestLimitsConcurrentScrapes(t *testing.T) {
	const most, all = 2, 6
	var arrived, running, highest, answered atomic.Int32
	release, over := make(chan struct{}), make(chan struct{})
	limited := limitConcurrent(most)(func(http.ResponseWriter, *http.Request) {
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
		limited(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) }) // otherwise Close would wait for requests that are not released
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
}

// TestCountsSeriesOfCompleteScrapes checks that a scrape with a query, or without an answer, does not change the count.
func TestCountsSeriesOfCompleteScrapes(t *testing.T) {
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
	for name, of := range map[string]func(*Merger) http.HandlerFunc{
		"merged": func(m *Merger) http.HandlerFunc { return m.merged },
		"Envoy":  func(m *Merger) http.HandlerFunc { return m.envoy },
	} {
		t.Run(name, func(t *testing.T) {
			fails.Store(false)
			m := New(Options{
				Registry: prometheus.NewRegistry(), Admin: envoy.NewAdmin(strings.TrimPrefix(admin.URL, "http://")),
				Workload: &callstats.Workload{}, Log: slog.New(slog.DiscardHandler),
			})
			t.Cleanup(m.Admin.Close)
			scrape := func(url string) {
				of(m)(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, url, http.NoBody))
			}
			series := func() float64 { return testutil.ToFloat64(m.series.WithLabelValues("source")) }
			scrape("/")
			require.InDelta(t, 2, series(), 0)
			scrape("/?filter=server")
			require.InDelta(t, 2, series(), 0, "a query selects some metrics")
			fails.Store(true)
			scrape("/")
			require.InDelta(t, 2, series(), 0, "Envoy did not answer")
		})
	}
}

// TestDoesNotScrapeTheSidecar checks that an App with one of the sidecar's ports is not scraped. An injected Pod's
// annotations refer to the status port.
func TestDoesNotScrapeTheSidecar(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(s.Close)
	port := portOf(s.Listener)
	m := New(Options{Registry: prometheus.NewRegistry(), Apps: []App{{Port: port}}, Bind: "0.0.0.0", Log: slog.New(slog.DiscardHandler)})
	ask := func() { m.readApps(scrapeRequest(t)) }
	ask()
	require.EqualValues(t, 1, asked.Load())
	m.OwnPorts = []uint16{port, 15090}
	ask()
	m.OwnPorts = []uint16{15020, port}
	ask()
	require.EqualValues(t, 1, asked.Load())
}

func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// TestSeveralAddresses checks that the metrics of all addresses of an application are merged, without one that does not answer.
func TestSeveralAddresses(t *testing.T) {
	serve := func(text string, code int) App {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, text)
		}))
		t.Cleanup(s.Close)
		return App{Port: portOf(s.Listener)}
	}
	apps := []App{serve("orders_total 7\n# EOF\n", http.StatusOK), serve("broken", http.StatusNotFound), serve("jobs_total 3", http.StatusOK)}
	m := New(Options{Registry: prometheus.NewRegistry(), Apps: apps, Bind: "127.0.0.1", Log: slog.New(slog.DiscardHandler)})
	got := m.readApps(scrapeRequest(t))
	require.Equal(t, "orders_total 7\njobs_total 3\n", string(bytes.Join(got, nil)))
	require.InDelta(t, 1, testutil.ToFloat64(m.failures.WithLabelValues("application")), 0)
}

// TestFollowsTheApplication checks that redirects of the application to another path are followed, and no others.
func TestFollowsTheApplication(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other 1\n") }))
	t.Cleanup(other.Close)
	target := ""
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics/":
			_, _ = io.WriteString(w, "orders_total 7\n")
		case "/absolute":
			http.Redirect(w, r, "http://"+r.Host+"/metrics/", http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			http.Redirect(w, r, target, http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(app.Close)
	for name, c := range map[string]struct{ path, target, want, err string }{
		"with a slash":   {"/metrics", "/metrics/", "orders_total 7\n", ""},
		"absolute":       {"/absolute", "", "orders_total 7\n", ""},
		"another port":   {"/metrics", other.URL + "/", "", "which is not asked for metrics"},
		"another host":   {"/metrics", "https://example.com/", "", "redirects to https://example.com"},
		"without an end": {"/loop", "", "", "more than 10 times"},
	} {
		t.Run(name, func(t *testing.T) {
			target = c.target
			m := &Merger{Options: Options{Bind: "127.0.0.1"}}
			got, err := m.scrapeApp(scrapeRequest(t), App{portOf(app.Listener), c.path})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}

// TestWarnsOfTheApplication checks that the second of several failures in a row is a warning: the application may start.
func TestWarnsOfTheApplication(t *testing.T) {
	fails := true
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fails {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(app.Close)
	var logged strings.Builder
	m := New(Options{
		Registry: prometheus.NewRegistry(), Apps: []App{{Port: portOf(app.Listener)}}, Bind: "127.0.0.1",
		Log: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	warnings := func() int {
		m.readApps(scrapeRequest(t))
		return strings.Count(logged.String(), "level=WARN")
	}
	require.Zero(t, warnings())
	require.Equal(t, 1, warnings())
	require.Contains(t, logged.String(), "404 Not Found")
	require.Equal(t, 1, warnings())
	fails = false
	require.Equal(t, 1, warnings())
	fails = true
	require.Equal(t, 1, warnings())
	require.Equal(t, 2, warnings())
}

// TestScrapesEitherFamily has an application that listens on IPv4 or on IPv6 only.
func TestScrapesEitherFamily(t *testing.T) {
	for host, other := range map[string]string{"127.0.0.1": "::1", "::1": "127.0.0.1"} {
		l := listenOnly(t, host, other)
		app := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "orders_total 7\n")
		})}}
		app.Start()
		t.Cleanup(app.Close)
		m := &Merger{Options: Options{Bind: "::"}}
		got, err := m.scrapeApp(scrapeRequest(t), App{Port: portOf(l)})
		require.NoError(t, err, host)
		require.Equal(t, "orders_total 7\n", string(got))
	}
}

// listenOnly listens on a port of host. It binds the same port of other, so that connections to it are refused.
func listenOnly(t *testing.T, host, other string) net.Listener {
	t.Helper()
	for {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		if taken := bound(t, net.ParseIP(other), l.Addr().(*net.TCPAddr).Port); taken >= 0 {
			t.Cleanup(func() { _ = syscall.Close(taken) })
			return l
		}
		require.NoError(t, l.Close())
	}
}

// bound returns a socket that is bound to an address and does not listen; -1 if the address is in use.
func bound(t *testing.T, ip net.IP, port int) (fd int) {
	t.Helper()
	family, at := syscall.AF_INET6, syscall.Sockaddr(&syscall.SockaddrInet6{Port: port, Addr: [16]byte(ip.To16())})
	if four := ip.To4(); four != nil {
		family, at = syscall.AF_INET, &syscall.SockaddrInet4{Port: port, Addr: [4]byte(four)}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	if err = syscall.Bind(fd, at); err == nil {
		return fd
	}
	require.NoError(t, syscall.Close(fd))
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	return -1
}

func TestFindApps(t *testing.T) {
	annotations := func(scrape, port, path string) map[string]string {
		return map[string]string{"prometheus.io/scrape": scrape, "prometheus.io/port": port, "prometheus.io/path": path}
	}
	for _, tc := range []struct {
		env         string
		annotations map[string]string
		want        []App
		err         string
	}{
		{"", nil, nil, ""},
		{"", annotations("true", "9102", "/m"), []App{{9102, "/m"}}, ""},
		{"", annotations("true", "", ""), []App{{80, ""}}, ""},
		{"", annotations("false", "9102", "/m"), nil, ""},
		{"", annotations("true", "15020", "/stats/prometheus"), nil, ""},
		{`{"scrape":"true","path":"/x","port":"8080"}`, annotations("true", "15020", "/stats/prometheus"), []App{{8080, "/x"}}, ""},
		{`{"scrape":"","path":"","port":"8080"}`, nil, []App{{8080, ""}}, ""},
		{`{"scrape":"1","port":"8080"}`, nil, []App{{8080, ""}}, ""},
		{`{"scrape":"false"}`, annotations("true", "9102", ""), nil, ""},
		{`{"port":"8080","path":"/m","targets":[{"port":"8080","path":"/m"},{"port":"9090","path":"/n"}]}`, nil, []App{{8080, "/m"}, {9090, "/n"}}, ""},
		{`{"targets":[{"port":"15090"},{"port":"9090"}]}`, nil, []App{{9090, ""}}, ""},
		{`{"targets":[{"port":"http"}]}`, nil, nil, "ISTIO_PROMETHEUS_ANNOTATIONS"},
		{"{", nil, nil, "ISTIO_PROMETHEUS_ANNOTATIONS"},
		{"", annotations("true", "http", ""), nil, "prometheus.io/port"},
	} {
		got, err := FindApps([]string{"ISTIO_PROMETHEUS_ANNOTATIONS=" + tc.env}, tc.annotations)
		require.Equal(t, tc.want, got)
		if tc.err == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, tc.err)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(""))
	require.Equal(t, scrapeTimeout, scrapeWithin(r))
	r.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", "2")
	require.Equal(t, 1800*time.Millisecond, scrapeWithin(r))
	require.Empty(t, withoutEOF([]byte("# EOF\n")))
}
