package inspect

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/clitest"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// moonsail runs a command line of moonsail with the commands of this package.
func moonsail(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	return clitest.Run(t, clitest.Root(Commands()...), args...)
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.Local)

// controlPlane serves debug pages of a control plane with two changes and a proxy.
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

func (oneProxy) LastStates() []server.ProxyState { return nil }

func (oneProxy) Proxy(id string) (server.ProxyState, bool) { return aProxy(), id == "reviews-1.shop" }

func aProxy() server.ProxyState {
	return server.ProxyState{
		ID: "sidecar~127.0.0.1~reviews-1.shop~shop.svc.cluster.local", Name: "reviews-1", Namespace: "shop",
		Peer: "127.0.0.1:4711", Connected: noon.Add(-time.Hour), Protocol: "delta", Strategy: server.RoutesVHDS,
		Tables: []string{"outbound shop", "inbound reviews"}, Settled: 42,
		Pending: 2, OldestPending: 41, BehindSince: noon.Add(-3 * time.Second), Version: "1.40.0",
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

func TestNoControlPlane(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	status, _, errOut := moonsail(t, "changes", "--address", srv.URL)
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "404")
	srv.Close()

	status, _, errOut = moonsail(t, "changes", "--address", strings.TrimPrefix(srv.URL, "http://"))
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "error: no control plane answers: dial tcp")
	require.Contains(t, errOut, "where: control plane at "+strings.TrimPrefix(srv.URL, "http://")+"\n")
	require.Contains(t, errOut, "next:  start one (see 'moonsail serve --help')")

	status, _, errOut = moonsail(t, "changes", "--address", "%zz")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "invalid address")
}

func TestInvalidAnswer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer srv.Close()
	status, _, errOut := moonsail(t, "changes", "--address", srv.URL)
	require.Equal(t, 1, status)
	require.Contains(t, errOut, "invalid answer")
}
