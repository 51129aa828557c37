package agent

import (
	"encoding/json"
	"log/slog"
	"math"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/test/logtext"
)

func TestConcurrency(t *testing.T) {
	limit := func(n float64) func(*Config) { return func(c *Config) { c.CPULimit = CPULimit{n, "cpu.max"} } }
	base := func(n int32) func(*Config) {
		return func(c *Config) { c.ProxyConfig = &meshconfig.ProxyConfig{Concurrency: wrapperspb.Int32(n)} }
	}
	annotation := func(text string) func(*Config) {
		return func(c *Config) { c.Workload.Annotations = map[string]string{ProxyConfigAnnotation: text} }
	}
	flag := func(n int) func(*Config) { return func(c *Config) { c.Concurrency = &n } }
	for _, tc := range []struct {
		name    string
		changes []func(*Config)
		want    int
		because string
	}{
		{"no setting", nil, DefaultConcurrency, "default: no CPU limit is known"},
		{"less than one CPU", []func(*Config){limit(0.5)}, 1, "a CPU limit of 0.5 (cpu.max)"},
		{"less than two", []func(*Config){limit(1.9)}, 1, "a CPU limit of 1.9 (cpu.max)"},
		{"two", []func(*Config){limit(2)}, 2, "a CPU limit of 2 (cpu.max)"},
		{"many", []func(*Config){limit(7.5)}, 7, "a CPU limit of 7.5 (cpu.max)"},
		{"the mesh's ProxyConfig overrides the limit", []func(*Config){limit(2), base(3)}, 3, "ProxyConfig (--proxy-config)"},
		{"the annotation overrides the mesh's", []func(*Config){base(3), annotation("concurrency: 4")}, 4, "annotation proxy.istio.io/config"},
		{"an annotation without concurrency", []func(*Config){base(3), annotation("drainDuration: 50s")}, 3, "ProxyConfig (--proxy-config)"},
		{"all cores", []func(*Config){limit(2), annotation("concurrency: 0")}, 0, "annotation proxy.istio.io/config"},
		{"the flag overrides all", []func(*Config){limit(2), base(3), annotation("concurrency: 4"), flag(5)}, 5, "--concurrency"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := &logtext.Buffer{}
			c := Config{Workload: workload.Workload{Name: "a", IPs: []string{"127.0.0.1"}}, XDS: XDS{Plaintext: true}, Log: slog.New(slog.NewTextHandler(log, nil))}
			for _, change := range tc.changes {
				change(&c)
			}
			s, err := c.resolve()
			require.NoError(t, err)
			require.Equal(t, tc.want, s.concurrency)
			require.Equal(t, tc.because, s.because)
			require.Equal(t, int32(tc.want), s.proxyConfig.Concurrency.Value, "the control plane gets it")
			if tc.want == 0 && runtime.NumCPU() > 2 {
				require.Contains(t, log.String(), "throttled")
			}
		})
	}
}

// TestMaxConnections checks which setting limits the connections of clients.
func TestMaxConnections(t *testing.T) {
	runtimeValue := func(v string) map[string]string {
		return map[string]string{"overload.global_downstream_max_connections": v}
	}
	for name, tc := range map[string]struct {
		runtime, proxyMetadata map[string]string
		metadata               map[string]any
		connections            int32 // of connectionSettings; 0: unset
		want                   int64
		warns                  string
	}{
		"none":                          {want: math.MaxInt32},
		"runtime value":                 {runtime: runtimeValue("50000"), want: 50000},
		"proxyMetadata":                 {proxyMetadata: map[string]string{"ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS": "100"}, want: 100},
		"environment":                   {metadata: map[string]any{"GLOBAL_DOWNSTREAM_MAX_CONNECTIONS": "100"}, want: 100},
		"metadata precedes the runtime": {runtime: runtimeValue("50000"), metadata: map[string]any{"GLOBAL_DOWNSTREAM_MAX_CONNECTIONS": "100"}, want: 100},
		"invalid metadata":              {runtime: runtimeValue("50000"), metadata: map[string]any{"GLOBAL_DOWNSTREAM_MAX_CONNECTIONS": "many"}, want: 50000, warns: "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS value=many"},
		"connectionSettings":            {connections: 10, metadata: map[string]any{"GLOBAL_DOWNSTREAM_MAX_CONNECTIONS": "100"}, want: 10},
		"invalid connectionSettings":    {connections: -1, metadata: map[string]any{"GLOBAL_DOWNSTREAM_MAX_CONNECTIONS": "100"}, want: 100, warns: "connectionSettings.globalDownstreamConnectionLimit value=-1"},
		"0":                             {runtime: runtimeValue("0"), want: math.MaxInt32, warns: "use a number from 1"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &logtext.Buffer{}
			proxyConfig := &meshconfig.ProxyConfig{RuntimeValues: tc.runtime, ProxyMetadata: tc.proxyMetadata}
			if tc.connections != 0 {
				proxyConfig.ConnectionSettings = &meshconfig.ProxyConfig_ConnectionSettings{GlobalDownstreamConnectionLimit: wrapperspb.Int32(tc.connections)}
			}
			text, err := Bootstrap(Config{
				Workload: workload.Workload{Name: "a", IPs: []string{"127.0.0.1"}}, XDS: XDS{Plaintext: true}, Log: slog.New(slog.NewTextHandler(log, nil)),
				ProxyConfig: proxyConfig, Metadata: tc.metadata,
			})
			require.NoError(t, err)
			require.NotContains(t, log.String(), "no effect")
			var b struct {
				Manager struct {
					Monitors []struct {
						Config map[string]any `json:"typed_config"`
					} `json:"resource_monitors"`
				} `json:"overload_manager"`
			}
			require.NoError(t, json.Unmarshal(text, &b))
			require.Len(t, b.Manager.Monitors, 1)
			require.Equal(t, strconv.FormatInt(tc.want, 10), b.Manager.Monitors[0].Config["max_active_downstream_connections"])
			require.Contains(t, log.String(), tc.warns)
		})
	}
}
