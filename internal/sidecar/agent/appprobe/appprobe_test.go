package appprobe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// never is the state of a sidecar that does not drain.
var never = Draining{Hold: func(context.Context) {}, Begin: func() (end func()) { return func() {} }, Released: func() bool { return false }}

// startServer serves probes for applications on this host.
func startServer(t *testing.T, probers string) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	t.Setenv(ProbersVariable, probers)
	require.NoError(t, Register(mux, "127.0.0.1", never))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// TestProbesAtTheLoopbackAddress checks LocalProbesVariable.
func TestProbesAtTheLoopbackAddress(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(app.Close)
	t.Setenv(ProbersVariable, `{"/app-health/a/livez":{"httpGet":{"port":`+portOf(app.URL)+`}}}`)
	ask := func() int {
		mux, w := http.NewServeMux(), httptest.NewRecorder()
		require.NoError(t, Register(mux, "127.0.0.9", never))
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/app-health/a/livez", http.NoBody))
		return w.Code
	}
	require.Equal(t, http.StatusInternalServerError, ask(), "nothing listens at the workload's address")
	t.Setenv(LocalProbesVariable, "true")
	require.Equal(t, http.StatusTeapot, ask())
	require.Equal(t, "::1", loopback("2001:db8::1"))
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://"))
	return port
}

func statusAt(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("User-Agent", "kube-probe/1.99")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func TestHTTPProbes(t *testing.T) {
	var seen *http.Request
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		switch r.URL.Path {
		case "/teapot":
			w.WriteHeader(http.StatusTeapot)
		case "/elsewhere":
			http.Redirect(w, r, "http://203.0.113.1/", http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/teapot", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/nonsense":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 007 Bond\r\nContent-Length: 0\r\n\r\n")
				_ = conn.Close()
			}
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	gone := httptest.NewServer(handler)
	gone.Close()
	get := func(server *httptest.Server, path, more string) string {
		return fmt.Sprintf(`{"httpGet":{"path":%q,"port":%s%s}}`, path, portOf(server.URL), more)
	}
	s := startServer(t, fmt.Sprintf(`{"/app-health/a/readyz":%s,"/app-health/a/livez":%s,"/app-health/b/readyz":%s,"/app-health/c/livez":%s,"/app-health/d/livez":%s,"/app-lifecycle/a/prestopz":%s,"/app-health/e/livez":%s,"/app-health/f/livez":%s}`,
		get(plain, "/ok?x=1", `,"httpHeaders":[{"name":"Host","value":"app.test"},{"name":"X-Own","value":"v"}]`), get(plain, "teapot", ""),
		get(secure, "/", `,"scheme":"HTTPS"`), get(plain, "/elsewhere", ""), get(plain, "/here", ""), get(gone, "/", ""), get(plain, "/loop", ""), get(plain, "/nonsense", "")))
	require.Equal(t, http.StatusOK, statusAt(t, s.URL+"/app-health/a/readyz"))
	require.Equal(t, "app.test", seen.Host)
	require.Equal(t, "v", seen.Header.Get("X-Own"))
	require.Equal(t, "kube-probe/1.99", seen.UserAgent())
	require.Equal(t, "/ok?x=1", seen.URL.String())
	require.True(t, strings.HasPrefix(seen.RemoteAddr, "127.0.0.6:"), seen.RemoteAddr)
	require.Equal(t, http.StatusTeapot, statusAt(t, s.URL+"/app-health/a/livez"))
	require.Equal(t, http.StatusOK, statusAt(t, s.URL+"/app-health/b/readyz"))
	require.Equal(t, "HTTP/2.0", seen.Proto)
	require.Equal(t, http.StatusFound, statusAt(t, s.URL+"/app-health/c/livez"))
	require.Equal(t, http.StatusTeapot, statusAt(t, s.URL+"/app-health/d/livez"))
	require.Equal(t, http.StatusInternalServerError, statusAt(t, s.URL+"/app-lifecycle/a/prestopz"))
	require.Equal(t, http.StatusInternalServerError, statusAt(t, s.URL+"/app-health/e/livez"), "a redirect loop")
	require.Equal(t, http.StatusInternalServerError, statusAt(t, s.URL+"/app-health/f/livez"), "an invalid status")
	require.Equal(t, http.StatusNotFound, statusAt(t, s.URL+"/app-health/unknown/readyz"))
}

func TestTCPAndGRPCProbes(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, healths := grpc.NewServer(), health.NewServer()
	healthv1.RegisterHealthServer(server, healths)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	port := portOf(ln.Addr().String())
	s := startServer(t, fmt.Sprintf(`{"/app-health/a/livez":{"tcpSocket":{"port":%[1]s}},"/app-health/a/readyz":{"grpc":{"port":%[1]s,"service":"shop"},"timeoutSeconds":3},"/app-health/a/startupz":{"grpc":{"port":%[1]s,"service":null}}}`, port))
	require.Equal(t, http.StatusOK, statusAt(t, s.URL+"/app-health/a/livez"))
	require.Equal(t, http.StatusOK, statusAt(t, s.URL+"/app-health/a/startupz"))
	require.Equal(t, http.StatusInternalServerError, statusAt(t, s.URL+"/app-health/a/readyz"), "unknown service")
	healths.SetServingStatus("shop", healthv1.HealthCheckResponse_NOT_SERVING)
	require.Equal(t, http.StatusInternalServerError, statusAt(t, s.URL+"/app-health/a/readyz"))
	healths.SetServingStatus("shop", healthv1.HealthCheckResponse_SERVING)
	require.Equal(t, http.StatusOK, statusAt(t, s.URL+"/app-health/a/readyz"))
	server.Stop()
	require.NoError(t, await.From(t, ended))
	require.Equal(t, http.StatusInternalServerError, statusAt(t, s.URL+"/app-health/a/livez"))
	require.Equal(t, http.StatusInternalServerError, statusAt(t, s.URL+"/app-health/a/startupz"))
}

// TestProtocolsOfProbes checks probes that state how the application expects connections.
func TestProtocolsOfProbes(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h2c := httptest.NewUnstartedServer(handler)
	h2c.Config.Protocols = &http.Protocols{}
	h2c.Config.Protocols.SetUnencryptedHTTP2(true)
	h2c.Start()
	t.Cleanup(h2c.Close)
	healths := grpc.NewServer()
	healthv1.RegisterHealthServer(healths, health.NewServer())
	secure := httptest.NewUnstartedServer(healths)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, test := range map[string]struct {
		probe string
		want  int
	}{
		"HTTP/1.1":         {`{"httpGet":{"port":` + portOf(h2c.URL) + `,"protocol":"HTTP1"}}`, http.StatusInternalServerError},
		"HTTP/2":           {`{"httpGet":{"port":` + portOf(h2c.URL) + `,"protocol":"HTTP2"}}`, http.StatusTeapot},
		"gRPC":             {`{"grpc":{"port":` + portOf(secure.URL) + `,"mode":"Plaintext"}}`, http.StatusInternalServerError},
		"gRPC through TLS": {`{"grpc":{"port":` + portOf(secure.URL) + `,"mode":"TLS"}}`, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, `{"/app-health/a/livez":`+test.probe+`}`)
			require.Equal(t, test.want, statusAt(t, s.URL+"/app-health/a/livez"))
		})
	}
}

func TestInvalidProbers(t *testing.T) {
	for text, want := range map[string]string{
		"{":                               "not a JSON object of probes by path",
		`{"/x":{"tcpSocket":{"port":1}}}`: `invalid path "/x": begin it with /app-health/ or /app-lifecycle/`,
		`{"/app-health/a/livez":{}}`:      "exactly one of",
		`{"/app-health/a/livez":null}`:    "exactly one of",
		`{"/app-health/a/livez":{"httpGet":{"port":1},"grpc":{"port":1}}}`: "exactly one of",
		`{"/app-health/a/livez":{"tcpSocket":{"port":"http"}}}`:            ProbersVariable,
	} {
		t.Setenv(ProbersVariable, text)
		err := Register(http.NewServeMux(), "127.0.0.1", never)
		require.ErrorContains(t, err, want, text)
	}
	t.Setenv(ProbersVariable, "")
	require.NoError(t, Register(http.NewServeMux(), "127.0.0.1", never))
}

// TestPathsAreNotPatterns checks that a path may contain characters with a meaning in a mux's pattern.
func TestPathsAreNotPatterns(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	probe := `{"httpGet":{"port":` + portOf(app.URL) + `}}`
	s := startServer(t, `{"/app-health/{a/livez":`+probe+`,"/app-health//livez":`+probe+`,"/app-health/a":`+probe+`}`)
	require.Equal(t, http.StatusOK, statusAt(t, s.URL+"/app-health/{a/livez"))
	require.Equal(t, http.StatusOK, statusAt(t, s.URL+"/app-health/a"))
	require.Equal(t, http.StatusNotFound, statusAt(t, s.URL+"/app-health/b"))
}
