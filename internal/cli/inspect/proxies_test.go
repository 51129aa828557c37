package inspect

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/server"
)

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
		"BEHIND":       {Pending: 1},
		"BEHIND 2m10s": {Pending: 1, BehindSince: noon.Add(-130 * time.Second)},
		"NACKED 2":     {Pending: 1, Types: []server.TypeState{{Held: make([]server.Held, 2)}}},
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
  status     NACKED 1: 2 revisions not ACKed, the oldest is 41
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

	status, _, errOut := moonsail(t, "proxies", "unknown-1", "--address", address)
	require.Equal(t, 1, status)
	require.Contains(t, errOut, `error: proxy "unknown-1" is not connected`)
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

func TestProxiesWorkers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/proxies":
			_, _ = io.WriteString(w, `{"proxies":[{"name":"web","namespace":"shop"},{"name":"api","namespace":"shop"},{"name":"old","namespace":"shop"}]}`)
		case "/debug/proxies/web.shop/envoy/workers":
			_, _ = io.WriteString(w, `{"concurrency":2,"because":"--concurrency","imbalance":"worker 1 has 90 of 100 connections, 1.8 times the mean",
				"workers":[{"worker":0,"connections":10,"cpu":0.05},{"worker":1,"connections":90,"cpu":0.9}]}`)
		case "/debug/proxies/api.shop/envoy/workers":
			_, _ = io.WriteString(w, `{"concurrency":1,"because":"a CPU limit of 1 (cpu.max)","workers":[{"worker":0,"connections":3,"cpu":-1}]}`)
		default:
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, `{"error":"the proxy's agent cannot be asked"}`)
		}
	}))
	defer s.Close()
	status, out, errOut := moonsail(t, "proxies", "--workers", "--address", s.URL)
	require.Zero(t, status, errOut)
	require.Regexp(t, `(?m)^PROXY +WORKERS +CONNECTIONS +CPU +NOTE$`, out)
	require.Regexp(t, `(?m)^api.shop +1 +3 +\? +from a CPU limit of 1 \(cpu.max\)$`, out)
	require.Regexp(t, `(?m)^old.shop +- +- +- +.*cannot be asked`, out)
	require.Regexp(t, `(?m)^web.shop +2 +10 90 +5% 90% +UNEVEN: worker 1 has 90 of 100 connections`, out)
}
