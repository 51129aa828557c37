package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.Local)

// controlPlane is debug pages as a control plane would serve them, with two changes and a proxy.
func controlPlane(t *testing.T) string {
	t.Helper()
	log := changelog.New(8, slog.New(slog.DiscardHandler), changelog.NewMetrics())
	for rev := model.Revision(1); rev <= 2; rev++ {
		key := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "reviews"}
		log.Begin(rev, []changelog.ChangedObject{{Key: key, Operation: changelog.Updated}}, noon)
		log.Mark(rev, changelog.StageStore, noon.Add(100*time.Microsecond))
		log.Mark(rev, changelog.StageDerive, noon.Add(400*time.Microsecond))
		log.Mark(rev, changelog.StageTranslate, noon.Add(600*time.Microsecond))
		log.Resources(rev, 1, 672)
		log.Published(rev, 1, noon.Add(700*time.Microsecond))
	}
	log.Sent(2, noon.Add(time.Millisecond))
	log.Settled(0, 2, distribution.ACKed, noon.Add(3100*time.Microsecond))
	stages := debug.Stages{Changes: log, Proxies: oneProxy{}}
	srv := httptest.NewServer(debug.Handler(stages, slog.New(slog.DiscardHandler)))
	t.Cleanup(srv.Close)
	return srv.URL
}

type oneProxy struct{}

func (oneProxy) Proxies() []server.ProxyState { return []server.ProxyState{aProxy()} }

func (oneProxy) Proxy(id string) (server.ProxyState, bool) { return aProxy(), id == "reviews-1.shop" }

func aProxy() server.ProxyState {
	return server.ProxyState{
		ID: "sidecar~127.0.0.1~reviews-1.shop~shop.svc.cluster.local", Name: "reviews-1", Namespace: "shop",
		Peer: "127.0.0.1:4711", Connected: noon.Add(-time.Hour), Protocol: "delta", Strategy: server.RoutesVHDS,
		Tables: []string{"outbound shop", "inbound reviews"}, Settled: 42,
		Owed: 2, OldestOwed: 41, BehindSince: noon.Add(-3 * time.Second), Version: "1.40.0",
		Types: []server.TypeState{
			{Type: "CDS", Wildcard: true, Sent: 42, ACKed: 42},
			{Type: "EDS", Subscribed: 12, Sent: 42, ACKed: 41, InFlightSince: noon.Add(-1200 * time.Millisecond)},
			{Type: "LDS", Wildcard: true, Subscribed: 2, Sent: 41, ACKed: 41, Waiting: "CDS"},
			{Type: "RDS"}, // whole route configurations: not in use
			{Type: "RDS", Subscribed: 1, Sent: 40, ACKed: 40,
				Held: []server.Held{{Name: "80", Version: "0123456789abcdef", Message: "Duplicate entry of domain"}}},
			{Type: "VHDS"},
		},
	}
}

func TestChangesTable(t *testing.T) {
	status, out, errOut := moonsail(t, "changes", "--address", controlPlane(t))
	require.Zero(t, status, errOut)
	require.Equal(t, `REV  TIME          STORE  DERIVE  TRANSLATE  SEND  ACK  TOTAL  PROXIES  BYTES  OBJECTS
1*   12:00:00.000  0.1    0.3     0.2        0.4   2.1  3.1    1/1      672    VirtualService/shop/reviews
2    12:00:00.000  0.1    0.3     0.2        0.4   2.1  3.1    1/1      672    VirtualService/shop/reviews
`, out)
}

func TestChangesNewestOnly(t *testing.T) {
	status, out, _ := moonsail(t, "changes", "-n", "1", "-o", "json", "--address", controlPlane(t))
	require.Zero(t, status)
	var list debug.ChangeList
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list.Changes, 1)
	require.Equal(t, model.Revision(2), list.Changes[0].Revision)
}

func TestNoChanges(t *testing.T) {
	var b strings.Builder
	require.NoError(t, printChanges(&b, debug.ChangeList{}))
	require.Equal(t, "no changes yet\n", b.String())
}

func TestChangeThatWaits(t *testing.T) {
	c := changelog.Change{State: changelog.Distributing, Observed: noon, Proxies: changelog.Proxies{Concerned: 3, Acked: 1, Nacked: 1}}
	require.Equal(t, "1/3 (1 refused) (waiting 5s)", changeProxies(terminal.Style{}, &c, noon.Add(5*time.Second)))
}

func TestWatch(t *testing.T) {
	at := func(rev model.Revision, state changelog.State) changelog.Change {
		return changelog.Change{Revision: rev, State: state, Observed: noon}
	}
	const done, busy = changelog.Distributed, changelog.Distributing
	var cw changeWatch
	for i, poll := range []struct {
		seconds int
		newest  model.Revision
		changes []changelog.Change // newest first
		want    []model.Revision
		after   model.Revision
	}{
		{0, 2, []changelog.Change{at(2, busy), at(1, done)}, []model.Revision{1}, 1},
		{1, 2, []changelog.Change{at(2, busy)}, nil, 1},
		{3, 3, []changelog.Change{at(3, done), at(2, busy)}, []model.Revision{2, 3}, 1}, // late: printed as it stands
		{4, 3, []changelog.Change{at(3, done), at(2, busy)}, nil, 1},                    // once
		{5, 3, []changelog.Change{at(3, done), at(2, done)}, []model.Revision{2}, 3},    // and again when done
		{6, 4, []changelog.Change{at(4, busy)}, []model.Revision{4}, 3},
		{7, 9, []changelog.Change{at(9, done)}, []model.Revision{9}, 9}, // 4 is forgotten
		{8, 1, []changelog.Change{at(1, done)}, []model.Revision{1}, 1}, // a new control plane
	} {
		list := debug.ChangeList{Now: noon.Add(time.Duration(poll.seconds) * time.Second), Newest: poll.newest, Changes: poll.changes}
		var got []model.Revision
		for _, c := range cw.next(list) {
			got = append(got, c.Revision)
		}
		require.Equal(t, poll.want, got, "poll %d", i)
		require.Equal(t, poll.after, cw.after(), "poll %d", i)
	}
}

// cancelling ends a context once what was written holds a text.
type cancelling struct {
	written strings.Builder
	text    string
	cancel  context.CancelFunc
}

func (c *cancelling) Write(p []byte) (int, error) {
	n, err := c.written.Write(p)
	if strings.Contains(c.written.String(), c.text) {
		c.cancel()
	}
	return n, err
}

func TestWatchUntilInterrupted(t *testing.T) {
	log := changelog.New(8, slog.New(slog.DiscardHandler), changelog.NewMetrics())
	polls := 0
	pages := debug.Handler(debug.Stages{Changes: log}, slog.New(slog.DiscardHandler))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		polls++ // requests come one after another
		log.Begin(model.Revision(polls), nil, noon)
		log.Published(model.Revision(polls), 0, noon)
		pages.ServeHTTP(w, r)
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &cancelling{text: "\n3 ", cancel: cancel}
	root := NewRootCommand()
	root.SetOut(out)
	root.SetArgs([]string{"changes", "--watch", "--address", srv.URL})
	require.Zero(t, terminal.Run(ctx, root))
	rows := strings.Split(strings.TrimSpace(out.written.String()), "\n")
	require.Len(t, rows, 4, out.written.String())
	for i, want := range []string{"REV ", "1 ", "2 ", "3 "} {
		require.True(t, strings.HasPrefix(rows[i], want), out.written.String())
	}
}

func TestProxiesTable(t *testing.T) {
	var b strings.Builder
	require.NoError(t, printProxies(&b, debug.ProxyList{Now: noon, Proxies: oneProxy{}.Proxies()}))
	require.Equal(t, `NAME       NAMESPACE  STATUS    CDS     EDS        LDS      RDS       VHDS  PROTOCOL  ROUTES  SETTLED  CONNECTED  ENVOY
reviews-1  shop       NACKED 1  SYNCED  SENT 1.2s  WAITING  NACKED 1  -     delta     vhds    42       1h0m0s     1.40.0
`, b.String())
	b.Reset()
	require.NoError(t, printProxies(&b, debug.ProxyList{}))
	require.Equal(t, "no proxies are connected\n", b.String())
}

func TestProxyStatus(t *testing.T) {
	for want, p := range map[string]server.ProxyState{
		"SYNCED":       {},
		"BEHIND":       {Owed: 1},
		"BEHIND 2m10s": {Owed: 1, BehindSince: noon.Add(-130 * time.Second)},
		"NACKED 2":     {Owed: 1, Types: []server.TypeState{{Held: make([]server.Held, 2)}}},
	} {
		require.Equal(t, want, proxyStatus(terminal.Style{}, &p, noon))
	}
}

func TestProxyDetail(t *testing.T) {
	var b strings.Builder
	require.NoError(t, printProxy(&b, debug.ProxyDetail{Now: noon, Proxy: aProxy()}))
	require.Equal(t, `reviews-1.shop
  node id    sidecar~127.0.0.1~reviews-1.shop~shop.svc.cluster.local
  peer       127.0.0.1:4711
  connected  1h0m0s ago, delta, routes by vhds
  version    Envoy 1.40.0
  status     NACKED 1: 2 revisions not accepted, revision 41 the first
  settled    revision 42
  table 1    outbound shop
  table 2    inbound reviews

TYPE  STATE      SUBSCRIBED  SENT  ACKED  NOTE
CDS   SYNCED     *           42    42
EDS   SENT 1.2s  12          42    41
LDS   WAITING    * and 2     41    41     waits for CDS
RDS   NACKED 1   1           40    40

refused RDS 80 (version 0123456789abcdef), held back until it differs:
  Duplicate entry of domain
`, b.String())
}

func TestProxiesCommand(t *testing.T) {
	address := controlPlane(t)
	status, out, _ := moonsail(t, "proxies", "--address", address)
	require.Zero(t, status)
	require.Contains(t, out, "reviews-1")

	status, out, _ = moonsail(t, "proxies", "reviews-1.shop", "-o", "yaml", "--address", address)
	require.Zero(t, status)
	var detail debug.ProxyDetail
	require.NoError(t, yaml.Unmarshal([]byte(out), &detail))
	require.Equal(t, aProxy().ID, detail.Proxy.ID)

	status, _, errOut := moonsail(t, "proxies", "nobody", "--address", address)
	require.Equal(t, 1, status)
	require.Contains(t, errOut, `error: proxy "nobody" is not connected`)
	require.Contains(t, errOut, "next:")
	for _, near := range []string{"review-1.shop", "pod/reviews-2.shop"} {
		status, _, errOut = moonsail(t, "proxies", near, "--address", address)
		require.Equal(t, 1, status)
		require.Contains(t, errOut, `is not connected; did you mean "reviews-1.shop"?`)
	}
	status, out, errOut = moonsail(t, "proxies", "pod/reviews-1.shop", "--address", address)
	require.Zero(t, status, errOut)
	require.Contains(t, out, "reviews-1.shop")

	_, out, _ = moonsail(t, "__complete", "proxies", "--address", address, "")
	require.Contains(t, out, "reviews-1.shop")
}

func TestNoControlPlane(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	status, _, errOut := moonsail(t, "changes", "--address", srv.URL)
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "404")
	srv.Close()

	status, _, errOut = moonsail(t, "changes", "--address", strings.TrimPrefix(srv.URL, "http://"))
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "error: no control plane answers: dial tcp")
	require.Contains(t, errOut, "where: "+srv.URL+"/debug/changes")
	require.Contains(t, errOut, "next:  start one with 'moonsail serve --config DIR'")

	status, _, errOut = moonsail(t, "changes", "--address", "%zz")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "is not an address")
}

func TestAnswerOfSomethingElse(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer srv.Close()
	status, _, errOut := moonsail(t, "changes", "--address", srv.URL)
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "the answer is not understood")
}
