package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadiness(t *testing.T) {
	live := func(change map[string]uint64) map[string]uint64 {
		stats := map[string]uint64{statState: 0, statWorkersStarted: 1, statCDSSuccess: 1, statLDSSuccess: 1}
		for k, v := range change {
			stats[k] = v
		}
		return stats
	}
	tests := []struct {
		name  string
		stats map[string]uint64
		want  string // empty: ready
	}{
		{"ready", live(nil), ""},
		{"ready although a later update was rejected", live(map[string]uint64{statLDSRejected: 1}), ""},
		{"no control plane", map[string]uint64{statState: 3}, "no connection to the control plane at cp:1"},
		{"connected", map[string]uint64{statState: 3, statXDSConnections: 1}, "has not sent everything yet"},
		{"clusters only", live(map[string]uint64{statLDSSuccess: 0}), "listeners: 0 accepted"},
		{"rejected", live(map[string]uint64{statLDSSuccess: 0, statLDSRejected: 2}), "listeners: 0 accepted, 2 rejected"},
		{"initialising", live(map[string]uint64{statState: 3}), "not LIVE but INITIALIZING"},
		{"draining", live(map[string]uint64{statState: 1}), "not LIVE but DRAINING"},
		{"workers", live(map[string]uint64{statWorkersStarted: 0}), "workers of Envoy have not started"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := readiness(tt.stats, "cp:1")
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestActiveConnections(t *testing.T) {
	require.Equal(t, 7, activeConnections(map[string]uint64{
		"listener.127.0.10.3_15006.downstream_cx_active":          3,
		"listener.127.0.10.3_15006.worker_0.downstream_cx_active": 2,
		"listener.127.0.10.3_15006.worker_1.downstream_cx_active": 1,
		"listener.0.0.0.0_9080.downstream_cx_active":              4,
		"listener.admin.downstream_cx_active":                     1,
		"listener.admin.main_thread.downstream_cx_active":         1,
		"listener.stats.downstream_cx_active":                     1,
		"listener.stats.worker_0.downstream_cx_active":            1,
		"listener.envoy_internal_x.downstream_cx_active":          1,
	}))
	require.Zero(t, activeConnections(nil))
}

func TestBackoff(t *testing.T) {
	var waits []time.Duration
	for wait := nextBackoff(0, 0); len(waits) < 9; wait = nextBackoff(wait, time.Second) {
		waits = append(waits, wait/time.Millisecond)
	}
	require.Equal(t, []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}, waits)
	require.Equal(t, firstBackoff, nextBackoff(maxBackoff, steadyAfter), "anew after a steady Envoy")
}

// The Istio that sidecars say they are is the one whose API we are built with.
func TestIstioVersionIsTheAPIs(t *testing.T) {
	mod, err := os.ReadFile("../../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(mod), "istio.io/api v"+IstioVersion+"\n")
}

func TestForwarder(t *testing.T) {
	var out bytes.Buffer
	f := newForwarder(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	for _, part := range []string{"warning\tupstream\tfirst", " half\nerror\tconfig\tsecond\n  continued\n\n", "debug\tmain\thidden\n", "info\tmain\tno newline"} {
		n, err := f.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	f.flush()
	require.Equal(t, `level=WARN msg="first half" envoy=upstream
level=ERROR msg=second envoy=config
level=ERROR msg="  continued" envoy=output
level=INFO msg="no newline" envoy=main
`, out.String())
	require.Equal(t, []string{"first half", "second", "  continued", "hidden", "no newline"}, f.last())
}

// TestForwarderTellsOnceThatNobodyAnswers: each minute, and not each time that Envoy tries.
func TestForwarderTellsOnceThatNobodyAnswers(t *testing.T) {
	var out bytes.Buffer
	f := newForwarder(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Unix(1000, 0)
	f.now = func() time.Time { return now }
	for i := range 150 {
		_, _ = fmt.Fprintf(f, "warning\tconfig\tDeltaAggregatedResources gRPC config stream to xds-grpc closed since %ds ago: 14, connection refused\n", 30+i)
		now = now.Add(time.Second)
	}
	require.Equal(t, 3, strings.Count(out.String(), "connection refused"))
	require.Contains(t, out.String(), "since 30s")
	require.Contains(t, out.String(), "since 150s")
	_, _ = f.Write([]byte("warning\tconfig\tDeltaAggregatedResources gRPC config stream to xds-grpc closed: 16, who are you\n"))
	require.Contains(t, out.String(), "who are you", "anything else is told")
}

func TestForwarderIsBounded(t *testing.T) {
	f := newForwarder(slog.New(slog.DiscardHandler))
	_, _ = f.Write([]byte(strings.Repeat("x", 3*maxLogLine+5)))
	require.Len(t, f.partial, 5)
	require.Len(t, f.last(), 3)
	for range 100 {
		_, _ = f.Write([]byte("line\n"))
	}
	require.Len(t, f.last(), tailLines)
}
