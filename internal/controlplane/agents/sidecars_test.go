package agents

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/sidecar/agent/inspect"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// one is a server with one proxy.
type one struct{ server.ProxyState }

func (o one) Proxy(string) (server.ProxyState, bool) { return o.ProxyState, true }

func proxyAt(peer string, port uint16, ips ...string) *server.ProxyState {
	return &server.ProxyState{ID: "node", Name: "web", Namespace: "shop", Peer: peer, Protocol: "delta", Proxy: &model.Proxy{ID: "node", IPs: ips, StatusPort: port}}
}

// TestAgentAddresses checks that a proxy cannot have the control plane call other addresses.
func TestAgentAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		proxy *server.ProxyState
		want  string
		fails string
	}{
		"where its stream comes from": {proxyAt("10.1.1.1:99", 15020, "10.1.1.1"), "10.1.1.1:15020", ""},
		"its second address":          {proxyAt("[fd00::1]:99", 15020, "10.1.1.1", "fd00::1"), "[fd00::1]:15020", ""},
		"on this machine":             {proxyAt("127.0.0.1:99", 15020, "127.5.5.5"), "127.5.5.5:15020", ""},
		"somewhere else":              {proxyAt("10.1.1.1:99", 15020, "10.9.9.9"), "", "its stream comes from 10.1.1.1:99"},
		"on our machine":              {proxyAt("10.1.1.1:99", 15014, "127.0.0.1"), "", "its agent is not asked"},
		"from a socket":               {proxyAt("@", 15020, "10.1.1.1"), "", "its agent is not asked"},
		"no port":                     {proxyAt("10.1.1.1:99", 0, "10.1.1.1"), "", "unknown address of its agent"},
	} {
		got, err := addressOf(c.proxy)
		if c.fails != "" {
			require.ErrorContains(t, err, c.fails, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestJudge(t *testing.T) {
	want := []explain.ConfigResource{{Type: "CDS", Name: "a", Version: "2"}}
	for name, c := range map[string]struct {
		versions bool
		got      inspect.Resource
		state    string
		why      string
	}{
		"in use":                  {true, inspect.Resource{State: inspect.Active, Version: "2"}, "LIVE", ""},
		"missing":                 {true, inspect.Resource{State: inspect.Missing}, "LIVE", "CDS a is not in Envoy"},
		"warming":                 {true, inspect.Resource{State: inspect.Warming, Version: "1", Warming: "2"}, "LIVE", "CDS a is warming"},
		"a newer one is warming":  {true, inspect.Resource{State: inspect.Warming, Version: "2", Warming: "3"}, "LIVE", ""},
		"an older one":            {true, inspect.Resource{State: inspect.Active, Version: "1"}, "LIVE", "CDS a is in use in another form"},
		"no versions":             {false, inspect.Resource{State: inspect.Active, Version: "response 9"}, "LIVE", ""},
		"no versions and warming": {false, inspect.Resource{State: inspect.Warming, Warming: "response 9"}, "LIVE", "CDS a is warming"},
		"not started":             {true, inspect.Resource{State: inspect.Active, Version: "2"}, "INITIALIZING", "Envoy is INITIALIZING"},
	} {
		c.got.Type, c.got.Name = "CDS", "a"
		u := judge("web.shop", c.versions, want, &inspect.InUse{State: c.state, Resources: []inspect.Resource{c.got}})
		require.Equal(t, c.why == "", u.InUse, name)
		if c.why != "" {
			require.Equal(t, []string{c.why}, u.Why, name)
		}
	}
}

// none is a control plane whose proxy should have nothing.
type none struct{ distribution.Proxies }

func (none) Intended(string, ...resource.Type) (*model.Proxy, []distribution.Intended, bool) {
	return &model.Proxy{ID: "node"}, nil, true
}

// newAsker returns a client of one agent with a fixed answer.
func newAsker(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	agent := httptest.NewServer(answer)
	t.Cleanup(agent.Close)
	at := netip.MustParseAddrPort(agent.Listener.Addr().(*net.TCPAddr).String())
	return New(one{*proxyAt("127.0.0.1:1", at.Port(), "127.0.0.1")}, &explain.Explainer{Proxies: none{}}, "")
}

func TestSampleTellsWhatItCouldNotAsk(t *testing.T) {
	a := newAsker(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	where := []distribution.ProxySyncStatus{{ID: "1", Name: "a", Namespace: "s", Position: distribution.StateACKed}, {ID: "2", Position: distribution.StateBehind},
		{ID: "3", Name: "c", Namespace: "s", Position: distribution.StateACKed}, {ID: "4", Position: distribution.StateACKed, Superseded: true}}
	got := a.Sample(t.Context(), where, 1, 5)
	require.Len(t, got, 2)
	require.Equal(t, "a.s", got[0].Proxy)
	require.Contains(t, got[0].Error, "403")
	require.Len(t, a.Sample(t.Context(), where, 1, 1), 1)
}

// TestAgentsHaveNoEnvoy checks that streams of agents for plugins do not count as Envoys.
func TestAgentsHaveNoEnvoy(t *testing.T) {
	agent := proxyAt("127.0.0.1:1", 0, "127.0.0.1")
	agent.Proxy.Extensions = true
	a := New(one{*agent}, &explain.Explainer{Proxies: none{}}, "")
	require.Empty(t, a.Sample(t.Context(), []distribution.ProxySyncStatus{{ID: "1", Position: distribution.StateACKed}}, 1, 3))
}

// meter records what it counts.
type meter struct {
	mu      sync.Mutex // guards results
	results []string
}

func (m *meter) InUse(_ time.Duration, result string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.results = append(m.results, result)
}

// TestSamplerDoesNotBlock checks that changes are skipped while one is measured, and that the measurement
// ends.
func TestSamplerDoesNotBlock(t *testing.T) {
	asked := make(chan struct{})
	a := newAsker(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		case <-r.Context().Done():
		}
		<-r.Context().Done()
		_ = json.NewEncoder(w).Encode(inspect.InUse{State: "LIVE"})
	})
	m := &meter{}
	s := NewSampler(a, time.Nanosecond, m)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	trace := changelog.Trace{Change: changelog.Change{Proxies: changelog.Proxies{Acked: 1}}, Answers: []changelog.Answer{{Proxy: "node", Outcome: distribution.ACKed}}}
	s.Trace(trace)
	await.From(t, asked)
	for range 10 {
		s.Trace(trace) // it returns
	}
	s.Trace(changelog.Trace{}) // no proxy has it
	cancel()
	await.From(t, ended)
	require.Empty(t, m.results, "nothing is known of who was asked when it ended")
}
