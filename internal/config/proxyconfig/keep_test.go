package proxyconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/proxyconfig"
)

// TestKeep checks which fields of a ProxyConfig stay.
func TestKeep(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		others     []string
		wrong      string
	}{
		"nothing to remove": {"concurrency: 2 # two", "concurrency: 2 # two", nil, ""},
		"others":            {"{concurrency: 2, binaryPath: /x, proxyMetadata: {A: b}}", `{"concurrency":2}`, []string{"binaryPath", "proxyMetadata"}, ""},
		"only others":       {"binaryPath: /x", "{}", []string{"binaryPath"}, ""},
		"snake case":        {"{drain_duration: 5s, binary_path: /x}", `{"drainDuration":"5s"}`, []string{"binaryPath"}, ""},
		"empty":             {"", "", nil, ""},
		"unknown fields":    {"{concurrency: 2, binaryPath: /x, ofANewerVersion: 1}", `{"concurrency":2}`, []string{"binaryPath", "ofANewerVersion"}, ""},
		"only unknown":      {"{concurrency: 2, ofANewerVersion: 1}", `{"concurrency":2}`, []string{"ofANewerVersion"}, ""},
		"duration":          {"{drainDuration: 1m, binaryPath: /x}", `{"drainDuration":"60s"}`, []string{"binaryPath"}, ""},
		"invalid":           {"concurrency: many", "", nil, "annotation: invalid ProxyConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			got, others, err := proxyconfig.Keep(c.text, "annotation", []string{"concurrency", "drainDuration"})
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.others, others)
		})
	}
}
