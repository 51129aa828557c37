package agent

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens anew")

// findEnvoy fails the test, with advice, where there is no Envoy.
func findEnvoy(t *testing.T) string {
	t.Helper()
	found, err := envoy.Find("")
	require.NoError(t, err)
	return found.Path
}

func ptr[T any](v T) *T { return &v }

func readPod(t *testing.T, name string) Workload {
	t.Helper()
	w, err := ReadPod("testdata/pods.yaml", name)
	require.NoError(t, err)
	return w
}

// bootstrapCases are configurations whose bootstraps are goldens, and which Envoy itself
// must find valid.
func bootstrapCases(t *testing.T) map[string]Config {
	roots := filepath.Join(t.TempDir(), "roots.pem")
	require.NoError(t, os.WriteFile(roots, selfSigned(t).certPEM, 0o600))
	return map[string]Config{
		"loopback": {
			Workload:     Workload{Name: "reviews-1", Namespace: "shop", IPs: []string{"127.0.10.3"}, Labels: map[string]string{"app": "reviews"}},
			Interception: model.InterceptNone,
			XDS:          XDS{Plaintext: true},
		},
		"pod": {
			Workload: readPod(t, "reviews-v1-6d8f-x2x"),
			Network:  "net-1",
			Metadata: map[string]any{"ISTIO_VERSION": "1.99.0", "MINE": map[string]any{"a": 1.0}},
			XDS:      XDS{Address: "istiod.istio-system.svc:15010", Plaintext: true},
		},
		"tls": {
			Workload: Workload{Name: "a", IPs: []string{"10.0.0.1"}},
			XDS:      XDS{Address: "istiod.istio-system.svc:15012", RootCert: roots}, WorkDir: "/run/sidecar",
		},
		"socket-ipv6": {
			Workload: Workload{Name: "a", IPs: []string{"fd00::7"}},
			XDS:      XDS{Address: "unix:///run/moonsail/xds.sock", Plaintext: true},
			Ports:    Ports{Admin: 16000, Prometheus: 16090},
		},
	}
}

func TestBootstrapGoldens(t *testing.T) {
	for name, c := range bootstrapCases(t) {
		t.Run(name, func(t *testing.T) {
			if c.XDS.RootCert != "" { // its folder differs in each run
				wd := t.TempDir()
				t.Chdir(wd)
				require.NoError(t, os.WriteFile("roots.pem", selfSigned(t).certPEM, 0o600))
				c.XDS.RootCert = "roots.pem"
			}
			got, err := Bootstrap(c)
			require.NoError(t, err)
			golden(t, name+".json", got)
		})
	}
}

var testdata, _ = filepath.Abs("testdata")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join(testdata, name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -rewrite once")
	require.Empty(t, cmp.Diff(string(want), string(got)), "%s (-want +got); if intended, run the test with -rewrite", name)
}

func TestEnvoyAcceptsBootstraps(t *testing.T) {
	binary := findEnvoy(t)
	for name, c := range bootstrapCases(t) {
		t.Run(name, func(t *testing.T) {
			content, err := Bootstrap(c)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "bootstrap.json")
			require.NoError(t, os.WriteFile(file, content, 0o600))
			out, err := exec.CommandContext(context.Background(), binary, "--mode", "validate", "--config-path", file,
				"--disable-hot-restart", "--log-level", "warning").CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.NotContains(t, string(out), "warning", "Envoy has something to say against the bootstrap")
			require.NotContains(t, string(out), "deprecated")
		})
	}
}

// TestUncounted: answers by code are counted where somebody keeps such statistics, by annotation
// or by an EnvoyFilter.
func TestUncounted(t *testing.T) {
	told := func(c Config, changes ...*bootstrapv3.Bootstrap) bool {
		s, err := c.resolve()
		require.NoError(t, err)
		s.amendments = changes
		b, err := s.bootstrap()
		require.NoError(t, err)
		return s.amended(b).Node.Metadata.Fields[agentapi.MetaUncounted].GetBoolValue()
	}
	c := bootstrapCases(t)["loopback"]
	require.True(t, told(c))
	require.True(t, told(c, &bootstrapv3.Bootstrap{FlagsPath: "/flags"}))
	require.False(t, told(c, &bootstrapv3.Bootstrap{StatsConfig: &metricsv3.StatsConfig{}}))
	c.Workload.Annotations = map[string]string{suffixesAnnotation: "upstream_rq_2xx"}
	require.False(t, told(c))
}

// Envoy starts only where statistics are evicted every so many flushes.
func TestEvictionKeepsStep(t *testing.T) {
	evicted := func(changes ...*bootstrapv3.Bootstrap) time.Duration {
		c := bootstrapCases(t)["loopback"]
		s, err := c.resolve()
		require.NoError(t, err)
		s.amendments = changes
		b, err := s.bootstrap()
		require.NoError(t, err)
		return s.amended(b).GetStatsEvictionInterval().AsDuration()
	}
	flush := func(d time.Duration) *bootstrapv3.Bootstrap {
		return &bootstrapv3.Bootstrap{StatsFlushInterval: durationpb.New(d)}
	}
	require.Equal(t, time.Minute, evicted())
	require.Equal(t, time.Minute, evicted(flush(2*time.Second)))
	require.Equal(t, 63*time.Second, evicted(flush(7*time.Second)))
	require.Equal(t, 2*time.Minute, evicted(flush(2*time.Minute)))
	require.Equal(t, 9*time.Second, evicted(flush(3*time.Second), &bootstrapv3.Bootstrap{
		StatsEviction: &bootstrapv3.Bootstrap_StatsEvictionInterval{StatsEvictionInterval: durationpb.New(9 * time.Second)},
	}), "it was asked for")
}

// TestWorkersAreTold: one worker has nothing to balance, and who says otherwise is heard.
func TestWorkersAreTold(t *testing.T) {
	for text, want := range map[string]string{
		"concurrency: 2": "",
		"concurrency: 1": "false",
		`{concurrency: 1, proxyMetadata: {ISTIO_META_INBOUND_LISTENER_EXACT_BALANCE: "true"}}`:  "true",
		`{concurrency: 2, proxyMetadata: {ISTIO_META_INBOUND_LISTENER_EXACT_BALANCE: "false"}}`: "false",
	} {
		c := bootstrapCases(t)["loopback"]
		annotated(text)(&c)
		s, err := c.resolve()
		require.NoError(t, err)
		said, _ := s.node.metadata[agentapi.MetaExactBalance].(string)
		require.Equal(t, want, said, text)
	}
}
