package doctor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/diagnose/doctor"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// sick is an Envoy whose only service has a dead endpoint, with a Lua filter and an unreachable control
// plane.
const sick = `{
  "node": {"id": "sick", "cluster": "sick"},
  "admin": {"address": {"pipe": {"path": "$DIR/admin"}}},
  "dynamic_resources": {
    "ads_config": {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "outbound|80||gone.shop.svc.cluster.local"}}]},
    "cds_config": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0.1s"}},
  "static_resources": {
    "clusters": [{"name": "outbound|80||gone.shop.svc.cluster.local", "type": "STATIC", "connect_timeout": "1s",
      "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {}}}},
      "load_assignment": {"cluster_name": "gone", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": $GONE}}}}]}]}}],
    "listeners": [{"name": "l", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}, "filter_chains": [{"filters": [{
      "name": "hcm", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "l", "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "outbound|80||gone.shop.svc.cluster.local"}}]}]},
        "http_filters": [
          {"name": "lua", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", "default_source_code": {"inline_string": "function envoy_on_request(h) end"}}},
          {"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}]
  }
}`

// startSick starts it, and returns its admin interface, its listener and the dead endpoint.
func startSick(t *testing.T) (admin, listener, gone string) {
	t.Helper()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone = free.Addr().String()
	require.NoError(t, free.Close())
	_, port, err := net.SplitHostPort(gone)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "doctor-") // short enough for a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "bootstrap.json")
	text := strings.NewReplacer("$DIR", dir, "$GONE", port).Replace(sick)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	binary, err := envoy.Find("")
	require.NoError(t, err)
	process, err := envoy.Start(envoy.Options{Path: binary.Path, Bootstrap: path, Concurrency: 2, LogLevel: "off", Output: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(process.Kill)
	admin = "unix://" + filepath.Join(dir, "admin")
	a := envoy.NewAdmin(admin)
	defer a.Close()
	require.Eventually(t, func() bool {
		listener = listening(t.Context(), a)
		return listener != "" && a.Ready(t.Context()) == nil
	}, time.Minute, 20*time.Millisecond)
	return admin, listener, gone
}

// listening returns where a listener listens; empty: not yet.
func listening(ctx context.Context, a *envoy.Admin) string {
	text, err := a.Listeners(ctx)
	if err != nil {
		return ""
	}
	var all struct {
		Listeners []struct {
			Address struct {
				Socket struct {
					Address string
					Port    int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if json.Unmarshal(text, &all) != nil || len(all.Listeners) == 0 {
		return ""
	}
	s := all.Listeners[0].Address.Socket
	return fmt.Sprintf("%s:%d", s.Address, s.Port)
}

// TestRealEnvoy checks that the problems of a real Envoy are found, and no others.
func TestRealEnvoy(t *testing.T) {
	admin, listener, gone := startSick(t)
	for range 5 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener, http.NoBody)
		require.NoError(t, err)
		transport := &http.Transport{DisableKeepAlives: true}
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	e, err := doctor.Collect(t.Context(), doctor.Options{Sidecars: []string{admin}})
	require.NoError(t, err)
	r := doctor.Examine(e)
	require.Equal(t, "1.40.0", r.Subjects[0].Version)
	found := map[string]doctor.Finding{}
	for _, f := range r.Findings {
		found[f.Check] = f
	}
	require.Contains(t, found["dead-endpoints"].Evidence[0], gone)
	require.Equal(t, doctor.Critical, found["dead-endpoints"].Severity)
	require.Equal(t, doctor.Critical, found["connected"].Severity)
	require.Equal(t, []string{"1 filters of envoy.extensions.filters.http.lua.v3.Lua"}, found["filters"].Evidence)
	require.Len(t, found, 3, "%+v", r.Findings)
	require.True(t, r.HasCritical())
	var wells []string
	for _, w := range r.Healthy {
		wells = append(wells, w.Check)
	}
	require.Subset(t, wells, []string{"refused-updates", "worker-balance", "limits", "series"})
}

// TestUnreachableProcess checks that a process without an answer is named.
func TestUnreachableProcess(t *testing.T) {
	_, err := doctor.Collect(t.Context(), doctor.Options{Sidecars: []string{"127.0.0.1:1"}})
	require.ErrorContains(t, err, "sidecar 127.0.0.1:1: ")
}

// page is a control plane's page for scrapers.
func page(text string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(text), nil }
}
