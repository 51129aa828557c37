package agent

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMergesTheApplicationsMetrics(t *testing.T) {
	ads := startADS(t, nil, nil, nil)
	close(ads.open)
	ip := ownIP()
	var fails atomic.Bool
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	require.NoError(t, err)
	app := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fails.Load() || r.URL.Path != "/custom" || r.Header.Get("Accept") != "text/plain;version=0.0.4" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "orders_total 7\n# EOF\n")
	})}}
	app.Start()
	t.Cleanup(app.Close)
	s := startSidecar(t, ip, ads.address, func(c *Config) {
		c.AppMetrics = AppMetrics{Port: uint16(l.Addr().(*net.TCPAddr).Port), Path: "/custom"}
	})
	s.awaitReady()
	_, merged := s.get(DefaultStatusPort, "/stats/prometheus")
	require.Contains(t, merged, "\norders_total 7\n")
	require.Contains(t, merged, "envoy_server_live{} 1\n")
	require.Contains(t, merged, "istio_agent_scrapes_total 1\n")
	require.NotContains(t, merged, "# EOF")

	fails.Store(true)
	_, merged = s.get(DefaultStatusPort, "/stats/prometheus")
	require.NotContains(t, merged, "orders_total")
	require.Contains(t, merged, "envoy_server_live{} 1\n", "the rest is there")
	_, merged = s.get(DefaultStatusPort, "/stats/prometheus")
	require.Contains(t, merged, `istio_agent_scrape_failures_total{type="application"} 2`)
}

// TestOwnMetricsAreNotMerged: an injected Pod's annotations lead to the status port, whatever that is.
func TestOwnMetricsAreNotMerged(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(s.Close)
	port, err := strconv.ParseUint(portOf(s.URL), 10, 16)
	require.NoError(t, err)
	a := &agent{settings: &settings{bind: "0.0.0.0", log: slog.New(slog.DiscardHandler), Config: Config{AppMetrics: AppMetrics{Port: uint16(port)}}}, metrics: newMetrics()}
	ask := func() { a.appMetrics(httptest.NewRequest(http.MethodGet, "/", http.NoBody)) }
	ask()
	require.EqualValues(t, 1, asked.Load())
	a.ports.Status = uint16(port)
	ask()
	a.ports.Status, a.ports.Prometheus = DefaultStatusPort, uint16(port)
	ask()
	require.EqualValues(t, 1, asked.Load())
}

// TestMetricsOfEitherFamily: the application may listen for IPv4 or for IPv6 alone.
func TestMetricsOfEitherFamily(t *testing.T) {
	for host, other := range map[string]string{"127.0.0.1": "::1", "::1": "127.0.0.1"} {
		l := listenAlone(t, host, other)
		app := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "orders_total 7\n")
		})}}
		app.Start()
		t.Cleanup(app.Close)
		a := &agent{settings: &settings{bind: "::", Config: Config{AppMetrics: AppMetrics{Port: uint16(l.Addr().(*net.TCPAddr).Port)}}}}
		got, err := a.scrapeApp(t.Context(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		require.NoError(t, err, host)
		require.Equal(t, "orders_total 7\n", string(got))
	}
}

// listenAlone listens at a port at which the other address refuses connections, as nobody else can have it.
func listenAlone(t *testing.T, host, other string) net.Listener {
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

// bound is a socket that has an address and does not listen; negative: somebody has that address.
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

func TestFindAppMetrics(t *testing.T) {
	annotations := func(scrape, port, path string) map[string]string {
		return map[string]string{"prometheus.io/scrape": scrape, "prometheus.io/port": port, "prometheus.io/path": path}
	}
	for _, tc := range []struct {
		env         string
		annotations map[string]string
		want        AppMetrics
		err         string
	}{
		{"", nil, AppMetrics{}, ""},
		{"", annotations("true", "9102", "/m"), AppMetrics{9102, "/m"}, ""},
		{"", annotations("true", "", ""), AppMetrics{80, ""}, ""},
		{"", annotations("false", "9102", "/m"), AppMetrics{}, ""},
		{"", annotations("true", "15020", "/stats/prometheus"), AppMetrics{}, ""},
		{`{"scrape":"true","path":"/x","port":"8080"}`, annotations("true", "15020", "/stats/prometheus"), AppMetrics{8080, "/x"}, ""},
		{`{"scrape":"","path":"","port":"8080"}`, nil, AppMetrics{8080, ""}, ""},
		{`{"scrape":"1","port":"8080"}`, nil, AppMetrics{8080, ""}, ""},
		{`{"scrape":"false"}`, annotations("true", "9102", ""), AppMetrics{}, ""},
		{"{", nil, AppMetrics{}, "ISTIO_PROMETHEUS_ANNOTATIONS"},
		{"", annotations("true", "http", ""), AppMetrics{}, "prometheus.io/port"},
	} {
		got, err := FindAppMetrics([]string{"ISTIO_PROMETHEUS_ANNOTATIONS=" + tc.env}, tc.annotations)
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
