package inspect

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dumps are an Envoy's dumps, by the requested resource.
var dumps = map[string]string{
	"dynamic_active_clusters":  `{"configs":[{"version_info":"v1","cluster":{"name":"a.b|c"}},{"version_info":"v1","cluster":{"name":"old"}}]}`,
	"dynamic_warming_clusters": `{"configs":[{"version_info":"v2","cluster":{"name":"old"}},{"version_info":"v3","cluster":{"name":"new"}}]}`,
	"dynamic_listeners": `{"configs":[{"name":"l","active_state":{"version_info":"v4"},"warming_state":{"version_info":"v5"}},
		{"name":"bad","active_state":{"version_info":"v6"},"error_state":{"details":"no such filter"}}]}`,
}

// fakeEnvoy is an admin interface. asked receives the regular expressions of requests.
func fakeEnvoy(t *testing.T) (admin *envoy.Admin, asked map[string]string) {
	t.Helper()
	asked = map[string]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := ""
		switch r.URL.Path {
		case "/logging":
			asked["logging"] = r.Method + " " + r.URL.RawQuery
			text = "active loggers:\n  rbac: debug\n"
		case "/server_info":
			text = `{"state":"LIVE"}`
		case "/stats":
			text = `{"stats":[{"name":"cluster_manager.active_clusters","value":7},{"name":"cluster_manager.warming_clusters","value":2},
				{"name":"listener_manager.total_listeners_active","value":5},{"name":"listener_manager.total_listeners_warming","value":1}]}`
		case "/config_dump":
			asked[r.URL.Query().Get("resource")] = r.URL.Query().Get("name_regex")
			text = dumps[r.URL.Query().Get("resource")]
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(srv.Close)
	admin = envoy.NewAdmin(strings.TrimPrefix(srv.URL, "http://"))
	t.Cleanup(admin.Close)
	return admin, asked
}

// TestInUse checks active, warming, refused and missing resources through the pages and their client, and that only
// requested resources are dumped.
func TestInUse(t *testing.T) {
	admin, asked := fakeEnvoy(t)
	pages := httptest.NewServer(Pages(admin, &Tail{}, debugauth.Policy{}, slog.New(slog.DiscardHandler)))
	defer pages.Close()
	c := &Client{Address: strings.TrimPrefix(pages.URL, "http://")}
	defer c.HTTP.CloseIdleConnections()
	u, err := c.InUse(t.Context(), []Question{{"CDS", "a.b|c"}, {"CDS", "old"}, {"CDS", "new"}, {"CDS", "gone"}, {"LDS", "l"}, {"LDS", "bad"}})
	require.NoError(t, err)
	require.Equal(t, "LIVE", u.State)
	require.Equal(t, Counts{7, 2}, u.Clusters)
	require.Equal(t, Counts{5, 1}, u.Listeners)
	require.Equal(t, []Resource{
		{Type: "CDS", Name: "a.b|c", State: Active, Version: "v1"},
		{Type: "CDS", Name: "old", State: Warming, Version: "v1", Warming: "v2"},
		{Type: "CDS", Name: "new", State: Warming, Warming: "v3"},
		{Type: "CDS", Name: "gone", State: Missing},
		{Type: "LDS", Name: "l", State: Warming, Version: "v4", Warming: "v5"},
		{Type: "LDS", Name: "bad", State: Active, Version: "v6", Error: "no such filter"},
	}, u.Resources)
	require.Equal(t, `^(a\.b\|c|old|new|gone)$`, asked["dynamic_active_clusters"])
	require.Equal(t, `^(l|bad)$`, asked["dynamic_listeners"])
}

// TestLongAnswersAreRefused checks that the client bounds the answer of an address that claims to be an agent.
func TestLongAnswersAreRefused(t *testing.T) {
	long := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"resources":[]}` + strings.Repeat(" ", maxInUse)))
	}))
	defer long.Close()
	c := &Client{Address: strings.TrimPrefix(long.URL, "http://")}
	defer c.HTTP.CloseIdleConnections()
	_, err := c.InUse(t.Context(), nil)
	require.ErrorContains(t, err, "more than 1048576 bytes")
	_, err = c.Get(t.Context(), PathInUse, nil)
	require.NoError(t, err, "a page may be longer")
}

// slow is a writer that blocks until a test releases it.
type slow struct {
	*httptest.ResponseRecorder
	began, take chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	close(s.began)
	<-s.take
	return s.ResponseRecorder.Write(b)
}

// TestSlowClientsDoNotBlockOthers checks that the turn ends when Envoy has answered.
func TestSlowClientsDoNotBlockOthers(t *testing.T) {
	admin, _ := fakeEnvoy(t)
	pages := Pages(admin, &Tail{}, debugauth.Policy{}, slog.New(slog.DiscardHandler))
	for _, page := range []string{PathStats, PathConfigDump + "?resource=dynamic_listeners", PathInUse} {
		r := httptest.NewRequest(http.MethodGet, page, http.NoBody)
		r.RemoteAddr = "127.0.0.1:1"
		s := &slow{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		var answering sync.WaitGroup
		answering.Go(func() { pages.ServeHTTP(s, r) })
		await.From(t, s.began)
		other := httptest.NewRecorder()
		done := make(chan struct{})
		answering.Go(func() { defer close(done); pages.ServeHTTP(other, r) })
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("%s waits for a client that does not read", page)
		}
		close(s.take)
		answering.Wait()
		require.Equal(t, s.Code, other.Code)
	}
}

func TestWhatPagesRefuse(t *testing.T) {
	admin, _ := fakeEnvoy(t)
	pages := Pages(admin, &Tail{}, debugauth.Policy{Flags: "--debug"}, slog.New(slog.DiscardHandler))
	ask := func(path, from string) (int, string) {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr, r.Host = from, "localhost"
		pages.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	status, body := ask(PathConfigDump, "10.1.2.3:4")
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, body, "--debug-token-file")
	status, _ = ask(PathInUse, "127.0.0.1:4")
	require.Equal(t, http.StatusOK, status)
	status, body = ask(PathInUse+"?cds="+strings.Repeat("x&cds=", maxAsked+1), "127.0.0.1:4")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "more than 64 resources")
	status, body = ask(PathListeners, "127.0.0.1:4")
	require.Equal(t, http.StatusBadGateway, status, "the admin interface has no page for %s", body)
}

// TestTail checks that Tail keeps the end of a log, in whole lines.
func TestTail(t *testing.T) {
	tail := &Tail{}
	line := strings.Repeat("x", 99) + "\n"
	for range 3 * maxTail / len(line) {
		_, err := tail.Write([]byte(line))
		require.NoError(t, err)
	}
	_, err := tail.Write([]byte("last\n"))
	require.NoError(t, err)
	got := string(tail.Bytes())
	require.LessOrEqual(t, len(got), maxTail)
	require.Greater(t, len(got), maxTail-2*len(line))
	require.True(t, strings.HasPrefix(got, line), "it begins with a whole line")
	require.True(t, strings.HasSuffix(got, line+"last\n"))
	require.LessOrEqual(t, len(tail.text), 2*maxTail)
}

// TestLevelsAreReadOnly checks that a client of the page cannot make Envoy log more; the log is a page, too.
func TestLevelsAreReadOnly(t *testing.T) {
	admin, asked := fakeEnvoy(t)
	pages := Pages(admin, &Tail{}, debugauth.Policy{}, slog.New(slog.DiscardHandler))
	for method, want := range map[string]int{http.MethodGet: http.StatusOK, http.MethodPost: http.StatusMethodNotAllowed} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, PathLogging+"?level=trace", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:4", "localhost"
		pages.ServeHTTP(w, r)
		require.Equal(t, want, w.Code)
		if want == http.StatusOK {
			require.JSONEq(t, `{"rbac": "debug"}`, w.Body.String())
		}
	}
	require.Equal(t, "POST ", asked["logging"])
}
