package agent

import (
	"testing"

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
		{"workers", live(map[string]uint64{statWorkersStarted: 0}), "the workers of Envoy have not started"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := readiness(tt.stats, &XDS{Address: "cp:1"})
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// TestHintOfTLS: an agent that speaks plain text, its default, may be given the address for TLS.
func TestHintOfTLS(t *testing.T) {
	none := map[string]uint64{statState: 3}
	require.EqualError(t, readiness(none, &XDS{Address: "cp:1"}), "no connection to the control plane at cp:1 (is it running there?)")
	require.EqualError(t, readiness(none, &XDS{Address: "cp:1", Plaintext: true}), "no connection to the control plane at cp:1 "+
		"(is it running there? if the address speaks TLS, set --xds-plaintext=false)")
}
