package debug

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// ask asks a control plane as a peer does.
func ask[T any](t *testing.T, s *Stages, method string, question any) *T {
	t.Helper()
	q, err := json.Marshal(question)
	require.NoError(t, err)
	b, err := (&PeerQueries{Explain: s.Explain, Proxies: s.Proxies, Changes: s.Changes, Dependencies: s.Dependencies}).Methods()[method](t.Context(), q)
	require.NoError(t, err)
	out := new(T)
	require.NoError(t, json.Unmarshal(b, out))
	return out
}

func TestListsPeers(t *testing.T) {
	s := whole(t)
	key := model.Key{Kind: model.KindService, Namespace: "shop", Name: "reviews"}
	e := ask[explain.Explanation](t, &s, MethodExplain, explainQuestion{key, true, 10})
	require.True(t, e.Exists)
	require.Equal(t, "7", e.ResourceVersion)
	key.Name = "ratings"
	e = ask[explain.Explanation](t, &s, MethodExplain, explainQuestion{key, true, -1})
	require.False(t, e.Exists, "that it is not there is an answer")
	require.Equal(t, changelog.Distributed, e.State)

	require.Len(t, ask[ProxyList](t, &s, MethodProxies, nil).Proxies, 1)
	require.Equal(t, reviewsID, ask[proxyAnswer](t, &s, MethodProxy, proxyQuestion{"reviews-1.shop"}).Detail.Proxy.ID)
	require.Nil(t, ask[proxyAnswer](t, &s, MethodProxy, proxyQuestion{"unknown"}).Detail)
	require.Empty(t, ask[explain.Stale](t, &s, MethodStale, nil).Holders)
	require.Equal(t, []string{"a"}, ask[nodeIDs](t, &s, MethodConnected, nodeIDs{[]string{"a", "b"}}).IDs)

	calls := ask[dependencies.Report](t, &s, MethodDependencies, dependencies.Question{Namespace: "shop", Workload: "web", CallersOf: "reviews"})
	require.Equal(t, dependencies.Workload{Namespace: "shop", Name: "web"}, calls.Workloads[0].Workload)
	s.Dependencies = nil
	require.Empty(t, ask[dependencies.Report](t, &s, MethodDependencies, nil).Workloads, "this one learns nothing")

	for name, method := range (&PeerQueries{}).Methods() {
		_, err := method(t.Context(), []byte("?"))
		require.ErrorContains(t, err, name)
	}
}

func TestAnswersToPeersAreBounded(t *testing.T) {
	list := []string{"0123456789", "0123456789", "0123456789"}
	fits, over := fitting(list, 30)
	require.Len(t, fits, 2)
	require.Equal(t, 1, over)
	fits, over = fitting(list, maxTold)
	require.Len(t, fits, 3)
	require.Zero(t, over)
}

// TestPeersNotKnownYet checks that a control plane does not answer for all before it knows its peers.
func TestPeersNotKnownYet(t *testing.T) {
	s := whole(t)
	s.Peers = peers.New(peers.Options{Log: slog.New(slog.DiscardHandler)})
	h := Handler(s, slog.New(slog.DiscardHandler))
	_, body := get(h, "/debug/explain/Service/shop/reviews")
	var e explain.Explanation
	require.NoError(t, json.Unmarshal([]byte(body), &e))
	require.False(t, e.Everywhere())
	require.Equal(t, "the other control planes are not known yet", e.Elsewhere[0].Silent)
	_, body = get(h, "/debug/search?q=reviews")
	var found Found
	require.NoError(t, json.Unmarshal([]byte(body), &found))
	require.Len(t, found.Others, 1)
	require.Equal(t, e.Elsewhere[0].Silent, found.Others[0].Silent)
	_, body = get(h, "/debug/explain/Service/shop/reviews?local")
	e = explain.Explanation{}
	require.NoError(t, json.Unmarshal([]byte(body), &e))
	require.Empty(t, e.Elsewhere)

	_, body = get(h, "/debug/traffic?local")
	require.Contains(t, body, `"complete": true`)
	_, body = get(h, "/debug/traffic")
	require.Contains(t, body, `"complete": false`)
	require.Contains(t, body, "the other control planes are not known yet")
}

func TestDependencies(t *testing.T) {
	s := whole(t)
	s.Peers = peers.New(peers.Options{Log: slog.New(slog.DiscardHandler)})
	h := Handler(s, slog.New(slog.DiscardHandler))
	_, body := get(h, "/debug/dependencies?namespace=shop&workload=web&callers-of=reviews")
	var r dependencies.Report
	require.NoError(t, json.Unmarshal([]byte(body), &r))
	require.Equal(t, dependencies.Workload{Namespace: "shop", Name: "web"}, r.Workloads[0].Workload)
	require.Equal(t, model.Host("reviews"), r.Workloads[0].Calls[0].Host)
	require.Equal(t, "the other control planes are not known yet", r.Others[0].Silent)
	_, body = get(h, "/debug/dependencies?local")
	r = dependencies.Report{}
	require.NoError(t, json.Unmarshal([]byte(body), &r))
	require.Empty(t, r.Others)

	s.Dependencies = nil
	code, body := get(Handler(s, slog.New(slog.DiscardHandler)), "/debug/dependencies")
	require.Equal(t, 404, code)
	require.Contains(t, body, "start the control plane with --learn-dependencies")
}
