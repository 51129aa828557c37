package debug

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/controlplane/agents"
	"github.com/moonsail/moonsail/internal/controlplane/dashboard"
	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
	"github.com/moonsail/moonsail/internal/controlplane/traffic"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// someProxies is a server with these proxies.
type someProxies []server.ProxyState

func (p someProxies) Proxies() []server.ProxyState { return p }

func (p someProxies) LastStates() []server.ProxyState { return nil }

// leftProxies are someProxies, and proxies that have disconnected.
type leftProxies struct {
	someProxies
	noneConcerned
	last []server.ProxyState
}

func (p leftProxies) Proxies() []server.ProxyState { return p.someProxies.Proxies() }

func (p leftProxies) LastStates() []server.ProxyState { return p.last }

func (p leftProxies) Disconnected() (out []distribution.Disconnected) {
	for _, l := range p.last {
		out = append(out, distribution.Disconnected{ID: l.ID, Name: l.Name, Namespace: l.Namespace, Since: l.DisconnectedSince, Settled: l.Settled})
	}
	return out
}

func (p leftProxies) Distribution(q *distribution.Query) (out []distribution.ProxySyncStatus) {
	for _, l := range p.last {
		if l.Settled < q.Revision {
			out = append(out, distribution.ProxySyncStatus{ID: l.ID, Name: l.Name, Namespace: l.Namespace, Position: distribution.StateDisconnected})
		}
	}
	return out
}

// TestDisconnectedProxies checks that pages have proxies that disconnected, as long as their Pods exist.
func TestDisconnectedProxies(t *testing.T) {
	stages := whole(t)
	last := func(name string) server.ProxyState {
		return server.ProxyState{ID: "sidecar~" + name, Name: name, Namespace: "shop", DisconnectedSince: time.Now().Add(-time.Minute), Settled: 2}
	}
	proxies := leftProxies{someProxies: stages.Proxies.(someProxies), last: []server.ProxyState{last("stuck"), last("deleted")}}
	st := store.New()
	pod := model.Key{Kind: model.KindPod, Namespace: "shop", Name: "stuck"}
	st.Apply([]store.Event{{Key: pod, Object: &model.Workload{Meta: model.Meta{Key: pod}}}})
	stages.Proxies, stages.Explain = proxies, &explain.Explainer{Snapshot: st.Snapshot, Changes: stages.Changes.(*changelog.Log), Proxies: proxies}
	h := Handler(stages, slog.New(slog.DiscardHandler))
	for path, connected := range map[string]int{"/debug/proxies": 1, "/debug/proxies?local": 1, "/debug/proxies?disconnected": 0} {
		var list ProxyList
		_, body := get(h, path)
		require.NoError(t, json.Unmarshal([]byte(body), &list))
		require.Len(t, list.Proxies, connected, path)
		require.Len(t, list.Disconnected, 1, path)
		require.Equal(t, "stuck", list.Disconnected[0].Name)
	}
	for _, name := range []string{"stuck", "stuck.shop", "sidecar~stuck"} {
		var d ProxyDetail
		code, body := get(h, "/debug/proxies/"+name)
		require.Equal(t, http.StatusOK, code)
		require.NoError(t, json.Unmarshal([]byte(body), &d))
		require.Equal(t, server.ProxyDisconnected, d.Proxy.Judge())
	}
	code, _ := get(h, "/debug/proxies/deleted.shop")
	require.Equal(t, http.StatusNotFound, code)
	var changes ChangeList
	_, body := get(h, "/debug/changes?disconnected")
	require.NoError(t, json.Unmarshal([]byte(body), &changes))
	require.Equal(t, map[model.Revision][]string{3: {"stuck.shop"}}, changes.Disconnected)
}

// TestLeaveOut checks that a proxy that is connected to another control plane is not disconnected, and that the control plane that a
// proxy left last has it.
func TestLeaveOut(t *testing.T) {
	left := func(id, plane string, ago time.Duration) server.ProxyState {
		return server.ProxyState{ID: id, Name: id, ControlPlane: plane, DisconnectedSince: time.Now().Add(-ago)}
	}
	l := ProxyList{Disconnected: []server.ProxyState{left("b", "one", time.Hour), left("b", "two", time.Minute), left("moved", "one", time.Minute), left("a", "", time.Minute)}}
	l.leaveOut(map[string]bool{"moved": true})
	require.Len(t, l.Disconnected, 2)
	require.Equal(t, "a", l.Disconnected[0].ID)
	require.Equal(t, "two", l.Disconnected[1].ControlPlane)
}

func (p someProxies) Proxy(id string) (server.ProxyState, bool) {
	for _, one := range p {
		if one.ID == id || one.Name+"."+one.Namespace == id {
			return one, true
		}
	}
	return server.ProxyState{}, false
}

const reviewsID = "sidecar~10.0.0.1~reviews-1.shop~shop.svc.cluster.local"

// whole is a control plane with something in every stage.
func whole(t *testing.T) Stages {
	t.Helper()
	st := store.New()
	svc := &model.Service{Meta: model.Meta{
		Key:             model.Key{Kind: model.KindService, Namespace: "shop", Name: "reviews"},
		ResourceVersion: "7", Origin: "shop.yaml:12",
	}}
	st.Apply([]store.Event{{Key: svc.Key, Object: svc}})

	m := changelog.NewMetrics()
	log := changelog.New(8, slog.New(slog.DiscardHandler), m)
	for rev := model.Revision(1); rev <= 3; rev++ {
		log.Begin(rev, []changelog.ChangedObject{{Key: svc.Key, Operation: changelog.Created}}, time.Now())
		log.Published(rev, int(rev)-1, time.Now())
	}
	return Stages{
		Ready:       func() error { return nil },
		Problems:    func() any { return []string{"one"} },
		Snapshot:    st.Snapshot,
		ProxyGroups: func() any { return []string{"two"} },
		CA:          func() any { return []string{"a root"} },
		Source:      func() any { return []string{"a kind"} },
		Changes:     log,
		Proxies: someProxies{{ID: reviewsID, Name: "reviews-1", Namespace: "shop",
			Proxy: &model.Proxy{DNSDomain: "shop.svc.cluster.local"}}},
		Explain:  &explain.Explainer{Snapshot: st.Snapshot, Changes: log, Proxies: noneConcerned{}},
		Gatherer: m.Registry,
		Traffic:  noTraffic{}, Dependencies: callsOfWeb{},
	}
}

// noTraffic measures nothing.
type noTraffic struct{}

func (noTraffic) Graph() *traffic.Graph {
	return &traffic.Graph{Source: traffic.SourceProxies, Complete: true}
}

// callsOfWeb is learned: web calls reviews.
type callsOfWeb struct{}

func (callsOfWeb) Report(q dependencies.Question) *dependencies.Report {
	web := dependencies.Workload{Namespace: q.Namespace, Name: q.Workload}
	return &dependencies.Report{Now: time.Now(), Workloads: []dependencies.WorkloadReport{{Workload: web, Calls: []dependencies.CallReport{{Host: model.Host(q.CallersOf)}}}}}
}

// noneConcerned are proxies without any state.
type noneConcerned struct{ distribution.Proxies }

func (noneConcerned) Distribution(*distribution.Query) []distribution.ProxySyncStatus { return nil }

func (noneConcerned) Holders([]distribution.GoneEndpoint) []distribution.Holder { return nil }

func (noneConcerned) Connected(ids []string) []string { return ids[:1] }

func (noneConcerned) Disconnected() []distribution.Disconnected { return nil }

func (noneConcerned) Intended(string, ...resource.Type) (*model.Proxy, []distribution.Intended, bool) {
	return nil, nil, false
}

func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestPages(t *testing.T) {
	h := Handler(whole(t), slog.New(slog.DiscardHandler))
	for _, tc := range []struct {
		path   string
		status int
		want   string // part of the body
	}{
		{"/", 302, "/debug"},
		{"/debug", 200, `<a href="/debug/changes">`},
		{"/debug/", 200, `<a href="/debug/changes">`},
		{"/ready", 200, `"ready": true`},
		{"/version", 200, `"platform"`},
		{"/metrics", 200, `pilot_inbound_updates{type="svc"} 3`},
		{"/debug/changes", 200, `"newest": 3`},
		{"/debug/changes?n=x", 400, `whole number`},
		{"/debug/changes?after=-1", 400, `whole number`},
		{"/debug/changes/2", 200, `"objectCount": 1`},
		{"/debug/changes/9", 404, `not in the change log`},
		{"/debug/changes/x", 400, `whole number`},
		{"/debug/search?q=reviews", 200, `"origin": "shop.yaml:12"`},
		{"/debug/search?q=Service+SHOP", 200, `"shop.yaml:12"`},
		{"/debug/search?q=reviews-1.shop", 200, `"id": "sidecar~10.0.0.1~reviews-1.shop`},
		{"/debug/search?q=nowhere", 200, `"objects": []`},
		{"/debug/search?q=", 200, `"objects": []`},
		{"/debug/search?q=" + strings.Repeat("x", 300), 400, `use a few words`},
		{"/debug/traffic", 200, `"source": "proxies"`},
		{"/debug/proxies", 200, `"reviews-1"`},
		{"/debug/proxies/" + reviewsID, 200, `"DNSDomain": "shop.svc.cluster.local"`},
		{"/debug/proxies/reviews-1.shop", 200, `"DNSDomain": "shop.svc.cluster.local"`},
		{"/debug/proxies/unknown", 404, `not connected`},
		{"/debug/problems", 200, `"one"`},
		{"/debug/scopes", 200, `"two"`},
		{"/debug/store", 200, `"Service": 1`},
		{"/debug/store/service", 200, `shop.yaml:12`},
		{"/debug/store/Service/shop/reviews", 200, `"ResourceVersion": "7"`},
		{"/debug/store/Service/shop/ratings", 404, `"page": "/debug/store/Service"`},
		{"/debug/store/WorkloadGroup", 400, `unknown: use Namespace`},
		{"/debug/store/Service/a/b/c", 400, `too many parts`},
		{"/debug/explain/Service/shop/reviews", 200, `"state": "building"`},
		{"/debug/explain/Service/shop/reviews?max=x", 400, `whole number`},
		{"/debug/explain/Service/shop/reviews?within=x", 400, `use a positive duration`},
		{"/debug/explain/Service", 400, `not an object`},
		{"/debug/explain/Service/shop/ratings", 404, `Service/shop/ratings: not found`},
		{"/debug/proxies/unknown/config/all", 404, `not connected`},
		{"/debug/proxies/unknown/config/wings", 400, `unknown: use listeners`},
		{"/debug/why/unknown?to=http://reviews", 404, `not connected`},
		{"/debug/why/unknown?to=gopher://reviews", 400, `unknown scheme`},
		{"/debug/why/unknown?to=http://reviews&header=x", 400, `name: value`},
		{"/debug/why/unknown?to=http://reviews&header=X-Role:+admin&header=x-role:+user", 400, `header \"x-role\": given twice`},
		{"/debug/stale", 200, `"holders": []`},
		{"/debug/pprof/", 200, "goroutine"},
		{"/debug/pprof/mutex?debug=1", 200, "mutex"},
		{"/nowhere", 404, `"page": "/debug"`},
	} {
		t.Run(strings.TrimPrefix(tc.path, "/"), func(t *testing.T) {
			status, body := get(h, tc.path)
			require.Equal(t, tc.status, status, body)
			require.Contains(t, body, tc.want)
		})
	}
}

// TestIndexIsComplete follows every link of the index page.
func TestIndexIsComplete(t *testing.T) {
	h := &handler{stages: whole(t), log: slog.New(slog.DiscardHandler)}
	all := Handler(h.stages, h.log)
	_, index := get(all, "/debug")
	for _, p := range h.pages() {
		require.Contains(t, index, p.path)
		require.Contains(t, index, html.EscapeString(p.about))
		if strings.HasSuffix(p.path, "}") || strings.HasPrefix(p.path, "/debug/pprof/") {
			continue
		}
		status, body := get(all, p.path)
		require.Equal(t, 200, status, "%s: %s", p.path, body)
	}
}

func TestChangesInNewestOrder(t *testing.T) {
	h := Handler(whole(t), slog.New(slog.DiscardHandler))
	for path, want := range map[string][]model.Revision{
		"/debug/changes":             {3, 2, 1},
		"/debug/changes?n=2":         {3, 2},
		"/debug/changes?after=2":     {3},
		"/debug/changes?after=3":     {},
		"/debug/changes?n=1&after=1": {3},
	} {
		_, body := get(h, path)
		var list ChangeList
		require.NoError(t, json.Unmarshal([]byte(body), &list), path)
		got := []model.Revision{}
		for _, c := range list.Changes {
			got = append(got, c.Revision)
		}
		require.Equal(t, want, got, path)
		require.Equal(t, model.Revision(3), list.Newest)
	}
}

func TestAbsentStages(t *testing.T) {
	h := Handler(Stages{}, slog.New(slog.DiscardHandler))
	for _, path := range []string{"/metrics", "/debug/changes", "/debug/proxies", "/debug/proxies/x", "/debug/problems",
		"/debug/store", "/debug/store/Service", "/debug/scopes", "/debug/source"} {
		status, body := get(h, path)
		require.Equal(t, 404, status, path)
		require.Contains(t, body, "not part of this process", path)
	}
}

func TestNotReady(t *testing.T) {
	h := Handler(Stages{Ready: func() error { return errors.New("the directory is still being read") }}, slog.New(slog.DiscardHandler))
	status, body := get(h, "/ready")
	require.Equal(t, 503, status)
	require.Contains(t, body, "not ready: the directory is still being read")
}

func TestOnlyReads(t *testing.T) {
	h := Handler(whole(t), slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/debug/changes", nil))
	require.Equal(t, 404, w.Code)
}

func TestPageThatPanics(t *testing.T) {
	var log bytes.Buffer
	h := Handler(Stages{ProxyGroups: func() any { panic("broken") }}, slog.New(slog.NewTextHandler(&log, nil)))
	status, body := get(h, "/debug/scopes")
	require.Equal(t, 500, status)
	require.Contains(t, body, "broken")
	require.Contains(t, log.String(), "path=/debug/scopes")
}

// TestPagesOfOthersTakeNoTurn checks that pages of other packages do not delay pages of this one.
func TestPagesOfOthersTakeNoTurn(t *testing.T) {
	s := whole(t)
	var h http.Handler
	s.More = []Page{{Path: "/debug/configz", Serve: func(w http.ResponseWriter, _ *http.Request) {
		status, _ := get(h, "/debug/stale?local")
		w.WriteHeader(status)
	}}}
	h = Handler(s, slog.New(slog.DiscardHandler))
	status, _ := get(h, "/debug/configz")
	require.Equal(t, http.StatusOK, status)
}

func TestStateThatIsNotJSON(t *testing.T) {
	h := Handler(Stages{ProxyGroups: func() any { return func() {} }}, slog.New(slog.DiscardHandler))
	status, body := get(h, "/debug/scopes")
	require.Equal(t, 500, status)
	require.Contains(t, body, "cannot be encoded as JSON")
}

func TestServeEndsWithItsContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- NewServer(whole(t), debugauth.Policy{}, slog.New(slog.DiscardHandler)).Serve(ctx, ln) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + ln.Addr().String() + "/ready")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)

	cancel()
	require.NoError(t, await.From(t, ended))
	_, err = net.Dial("tcp", ln.Addr().String())
	require.Error(t, err)
}

func TestServeOnAClosedListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	err = NewServer(Stages{}, debugauth.Policy{}, slog.New(slog.DiscardHandler)).Serve(t.Context(), ln)
	require.ErrorContains(t, err, "debug server on 127.0.0.1")
}

// TestIndexForPrograms checks that programs get the pages as JSON.
func TestIndexForPrograms(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug", http.NoBody)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	Handler(Stages{}, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
	var index struct {
		Pages []struct {
			Path, About string
			Link        bool
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &index), w.Body.String())
	links := map[string]bool{}
	for _, p := range index.Pages {
		require.NotEmpty(t, p.About)
		links[p.Path] = p.Link
	}
	require.True(t, links["/debug/changes"])
	require.Contains(t, links, "/debug/changes/{revision}")
	require.False(t, links["/debug/changes/{revision}"])
}

// TestDashboard checks that the page is public, because its reader may have a token, and its data is not.
func TestDashboard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600))
	ask := func(policy debugauth.Policy, path, token string) int {
		s := NewServer(Stages{}, policy, slog.New(slog.DiscardHandler))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		r.RemoteAddr = "192.0.2.1:1234"
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		return w.Code
	}
	tokens := debugauth.Policy{Flags: "--http", TokenFile: file}
	for _, path := range dashboard.Paths {
		require.Equal(t, http.StatusOK, ask(tokens, path, ""), path)
		require.Equal(t, http.StatusForbidden, ask(debugauth.Policy{}, path, ""), path)
	}
	for _, path := range []string{"/debug/changes", "/debug/changes/1", "/debug/traffic", "/debug/search?q=a", "/debug/proxies/a.b"} {
		require.Equal(t, http.StatusUnauthorized, ask(tokens, path, ""), path)
	}
	require.Equal(t, http.StatusOK, ask(tokens, "/debug", "0123456789abcdef"))
}

// TestUndecidedCall checks the status of a call that the simulator cannot decide. The request itself is right.
func TestUndecidedCall(t *testing.T) {
	w := httptest.NewRecorder()
	answer(w, nil, explain.UndecidedError{Proxy: "web.shop", Err: errors.New("listener: filter x is unknown to the simulator")})
	require.Equal(t, http.StatusNotImplemented, w.Code)
	require.Contains(t, w.Body.String(), "moonsail proxy-config all web.shop")
}

// TestCommandForMissingObjects checks that the advice names the source of the control plane.
func TestCommandForMissingObjects(t *testing.T) {
	for name, tc := range map[string]struct{ dir, want string }{
		"directory":  {"/etc/mesh", "run 'moonsail analyze /etc/mesh' to find"},
		"API server": {"", "run 'moonsail analyze' to find"},
	} {
		t.Run(name, func(t *testing.T) {
			stages := whole(t)
			stages.ConfigDir = tc.dir
			status, body := get(Handler(stages, slog.New(slog.DiscardHandler)), "/debug/explain/VirtualService/shop/absent")
			require.Equal(t, http.StatusNotFound, status)
			require.Contains(t, body, tc.want)
			stages.Source = nil
			status, body = get(Handler(stages, slog.New(slog.DiscardHandler)), "/debug/source")
			require.Equal(t, tc.dir != "", status == http.StatusOK && strings.Contains(body, `"directory": "`+tc.dir+`"`), body)
		})
	}
}

// silentAgents are agents that do not answer for some reason.
type silentAgents struct{ why error }

func (a silentAgents) Get(context.Context, string, string, url.Values) ([]byte, error) {
	return nil, a.why
}

func (silentAgents) Sample(context.Context, []distribution.ProxySyncStatus, model.Revision, int) []agents.Use {
	return nil
}

// TestSilentAgent checks that programs can tell an Envoy that is late from one that cannot be asked.
func TestSilentAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		why  error
		want int
	}{
		"late":    {&url.Error{Op: "Get", URL: "http://10.0.0.1:15020", Err: context.DeadlineExceeded}, http.StatusGatewayTimeout},
		"refuses": {errors.New("unauthorized"), http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			stages := whole(t)
			stages.Sidecars = silentAgents{tc.why}
			status, _ := get(Handler(stages, slog.New(slog.DiscardHandler)), "/debug/proxies/a/envoy/in-use")
			require.Equal(t, tc.want, status)
		})
	}
}
