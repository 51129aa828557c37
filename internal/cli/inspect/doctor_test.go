package inspect

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/doctor"
	"github.com/moonsail/moonsail/internal/terminal"
)

// serve serves pages of a control plane.
func serve(t *testing.T, pages map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := pages[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestDoctor checks that findings have evidence and cure, and that the exit status is 1 if something is ill.
func TestDoctor(t *testing.T) {
	text := "# TYPE pilot_info gauge\npilot_info{version=\"1.30\"} 1\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()

	status, out, _ := moonsail(t, "doctor", "--address", server.URL)
	require.Equal(t, 0, status, "blind is not ill")
	require.Contains(t, out, "istiod 1.30 "+server.URL+", seen since it started\n")
	require.Contains(t, out, "blind unknown how many changes wait in istiod's queues  (intake-queue, "+server.URL+")\n"+
		"      metric pilot_worker_queue_depth: missing\n"+
		"   -> set ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS=true on istiod\n")
	require.Contains(t, out, "well  "+server.URL+": rejects, send-errors\n")

	text += "# TYPE pilot_total_xds_rejects counter\npilot_total_xds_rejects{type=\"lds\"} 3\n"
	status, out, _ = moonsail(t, "doctor", "--address", server.URL, "-o", "json")
	require.Equal(t, terminal.ExitFailed, status)
	var r doctor.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, "rejects", r.Findings[0].Check, "the worst finding is first")

	text = "# TYPE moonsail_build_info gauge\nmoonsail_build_info{version=\"1\"} 1\n"
	status, out, _ = moonsail(t, "doctor", "--address", server.URL)
	require.Equal(t, 0, status, "the pages about proxies cannot be read")
	require.Contains(t, out, "blind unknown which proxies are behind, or refuse configuration")
	address := serve(t, map[string]string{
		"/metrics": text, "/debug/stale": `{}`,
		"/debug/proxies": `{"now":"2026-01-02T12:00:12Z","proxies":[{"name":"web-1","namespace":"shop","owed":1,"behindSince":"2026-01-02T12:00:00Z",` +
			`"types":[{"type":"EDS","inFlightSince":"2026-01-02T12:00:01Z"}]}]}`,
		"/debug/problems": `{"config":[],"translation":[{"group":"web","type":"LDS","name":"virtualInbound","error":"no"}]}`,
	})
	status, out, _ = moonsail(t, "doctor", "--address", address)
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, out, "web-1.shop: behind for 12s; EDS is not answered for 11s\n   -> see what a proxy waits for with 'moonsail proxies web-1.shop --address "+address+"';")
	require.Contains(t, out, "LDS virtualInbound of web: no\n")

	status, out, _ = moonsail(t, "doctor", "--address", serve(t, map[string]string{
		"/metrics": text, "/debug/stale": `{}`, "/debug/proxies": `{}`, "/debug/problems": `{}`,
		"/debug/dependencies": `{"workloads":[{"workload":"web","namespace":"shop","proxy":"web-1.shop","calls":[{"host":"reviews.shop.svc.cluster.local",` +
			`"service":{"kind":"Service","namespace":"shop","name":"reviews","ports":[{"number":70,"protocol":"tcp"},{"number":80,"protocol":"grpc"}]},"ports":[80],` +
			`"measured":{"seconds":60,"requests":100,"errors":52,"failures":{"502":50,"0 DC":2}}},{"host":"idle.example"}]}]}`,
	}))
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, out, "web.shop -> reviews.shop: 52 % of 100 requests in 60 s failed: 502 (50), 0 DC (2)\n")
	require.Contains(t, out, "'moonsail why web-1.shop grpc://reviews.shop:80/ --address ")

	text = "up 1\n"
	status, _, stderr := moonsail(t, "doctor", "--address", server.URL)
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, stderr, "not a control plane")

	status, _, stderr = moonsail(t, "doctor", "--over", "-1s")
	require.Equal(t, terminal.ExitUsage, status)
	require.Contains(t, stderr, "--over -1s: out of range: use 0 to 1h0m0s")
}
