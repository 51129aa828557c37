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

	text = "up 1\n"
	status, _, stderr := moonsail(t, "doctor", "--address", server.URL)
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, stderr, "not a control plane")

	status, _, stderr = moonsail(t, "doctor", "--over", "-1s")
	require.Equal(t, terminal.ExitUsage, status)
	require.Contains(t, stderr, "--over -1s: out of range: use 0 to 1h0m0s")
}
