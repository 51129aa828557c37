package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"

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
		{"nothing said", nil, DefaultConcurrency, "default: no CPU limit is known"},
		{"less than one CPU", []func(*Config){limit(0.5)}, 1, "a CPU limit of 0.5 (cpu.max)"},
		{"less than two", []func(*Config){limit(1.9)}, 1, "a CPU limit of 1.9 (cpu.max)"},
		{"two", []func(*Config){limit(2)}, 2, "a CPU limit of 2 (cpu.max)"},
		{"many", []func(*Config){limit(7.5)}, 7, "a CPU limit of 7.5 (cpu.max)"},
		{"the mesh's beats the limit", []func(*Config){limit(2), base(3)}, 3, "ProxyConfig (--proxy-config)"},
		{"the annotation beats the mesh's", []func(*Config){base(3), annotation("concurrency: 4")}, 4, "annotation proxy.istio.io/config"},
		{"an annotation of other things", []func(*Config){base(3), annotation("drainDuration: 50s")}, 3, "ProxyConfig (--proxy-config)"},
		{"all cores", []func(*Config){limit(2), annotation("concurrency: 0")}, 0, "annotation proxy.istio.io/config"},
		{"the flag beats all", []func(*Config){limit(2), base(3), annotation("concurrency: 4"), flag(5)}, 5, "--concurrency"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := &logtext.Buffer{}
			c := Config{Workload: Workload{Name: "a", IPs: []string{"127.0.0.1"}}, XDS: XDS{Plaintext: true}, Log: slog.New(slog.NewTextHandler(log, nil))}
			for _, change := range tc.changes {
				change(&c)
			}
			s, err := c.resolve()
			require.NoError(t, err)
			require.Equal(t, tc.want, s.concurrency)
			require.Equal(t, tc.because, s.because)
			require.Equal(t, int32(tc.want), s.proxyConfig.Concurrency.Value, "the control plane is told")
			if tc.want == 0 && runtime.NumCPU() > 2 {
				require.Contains(t, log.String(), "throttled")
			}
		})
	}
}

func TestCPULimit(t *testing.T) {
	root := t.TempDir()
	write := func(dir, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, "cpu.max"), []byte(text), 0o600))
	}
	write("pods/one/main", "max 100000\n")
	write("pods/one", "150000 100000\n")
	write("pods", "400000 100000\n")
	write("broken", "x")
	require.Equal(t, CPULimit{1.5, filepath.Join(root, "pods/one/cpu.max")}, cgroupLimit(root, "1:cpu:/old\n0::/pods/one/main\n"))
	require.Equal(t, 4.0, cgroupLimit(root, "0::/pods").CPUs)
	require.Zero(t, cgroupLimit(root, "0::/broken"))
	require.Zero(t, cgroupLimit(root, "0::/nowhere"))
	require.Zero(t, cgroupLimit(root, "1:cpu:/pods"), "version 1")
	write("", "50000 100000\n")
	require.Equal(t, 0.5, cgroupLimit(root, "0::/").CPUs)

	got, err := FindCPULimit([]string{"X=1", "ISTIO_CPU_LIMIT=3"})
	require.NoError(t, err)
	require.Equal(t, CPULimit{3, "ISTIO_CPU_LIMIT"}, got)
	for _, bad := range []string{"x", "0", "-1", "NaN", "Inf"} {
		_, err := FindCPULimit([]string{"ISTIO_CPU_LIMIT=" + bad})
		require.ErrorContains(t, err, "ISTIO_CPU_LIMIT", bad)
	}
}
