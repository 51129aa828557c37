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
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

var update = flag.Bool("update", false, "write the results to testdata")

// findEnvoy fails the test, with advice, if there is no Envoy.
func findEnvoy(t *testing.T) string {
	t.Helper()
	found, err := envoy.Find("")
	require.NoError(t, err)
	return found.Path
}

func ptr[T any](v T) *T { return &v }

// bootstrapCases are configurations with golden files of their bootstraps, which Envoy must accept.
func bootstrapCases(t *testing.T) map[string]Config {
	roots := filepath.Join(t.TempDir(), "roots.pem")
	require.NoError(t, os.WriteFile(roots, selfSigned(t).certPEM, 0o600))
	pod, err := workload.ReadPod("workload/testdata/pods.yaml", "reviews-v1-6d8f-x2x")
	require.NoError(t, err)
	return map[string]Config{
		"loopback": {
			Workload:     workload.Workload{Name: "reviews-1", Namespace: "shop", IPs: []string{"127.0.10.3"}, Labels: map[string]string{"app": "reviews"}},
			Interception: model.InterceptNone,
			XDS:          XDS{Plaintext: true},
		},
		"pod": {
			Workload: pod,
			Network:  "net-1",
			Metadata: map[string]any{"ISTIO_VERSION": "1.99.0", "MINE": map[string]any{"a": 1.0}},
			XDS:      XDS{Address: "istiod.istio-system.svc:15010", Plaintext: true},
		},
		"tls": {
			Workload: workload.Workload{Name: "a", IPs: []string{"10.0.0.1"}},
			XDS:      XDS{Address: "istiod.istio-system.svc:15012", RootCert: roots}, WorkDir: "/run/sidecar",
		},
		"limits": {
			Workload:    workload.Workload{Name: "a", IPs: []string{"10.0.0.1"}},
			XDS:         XDS{Plaintext: true},
			ProxyConfig: &meshconfig.ProxyConfig{RuntimeValues: map[string]string{"overload.global_downstream_max_connections": "50000"}},
		},
		"socket-ipv6": {
			Workload: workload.Workload{Name: "a", IPs: []string{"fd00::7"}},
			XDS:      XDS{Address: "unix:///run/moonsail/xds.sock", Plaintext: true},
			Ports:    Ports{Admin: 16000, Prometheus: 16090},
		},
	}
}

func TestBootstrapGoldens(t *testing.T) {
	for name, c := range bootstrapCases(t) {
		t.Run(name, func(t *testing.T) {
			if c.XDS.RootCert != "" { // the folder of the case differs in each run
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
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update once")
	require.Empty(t, cmp.Diff(string(want), string(got)), "%s (-want +got); if intended, run the test with -update", name)
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
			require.NotContains(t, string(out), "warning", "Envoy warns about the bootstrap")
			require.NotContains(t, string(out), "deprecated")
		})
	}
}

// TestControlPlaneByFamilyOfWorkload checks which addresses Envoy calls if the control plane has a name.
func TestControlPlaneByFamilyOfWorkload(t *testing.T) {
	for want, ips := range map[string][]string{
		`"V4_PREFERRED"`: {"10.0.0.1", "fd00::7"},
		`"AUTO"`:         {"fd00::7"},
	} {
		t.Run(want, func(t *testing.T) {
			got, err := Bootstrap(Config{
				Workload: workload.Workload{Name: "a", IPs: ips}, XDS: XDS{Address: "mesh.example.com:15010", Plaintext: true},
			})
			require.NoError(t, err)
			require.Regexp(t, `"dns_lookup_family":\s*`+want, string(got))
		})
	}
}

// patchedBootstrap returns the bootstrap of c with patches.
func patchedBootstrap(t *testing.T, c Config, patches ...*bootstrapv3.Bootstrap) *bootstrapv3.Bootstrap {
	t.Helper()
	s, err := c.resolve()
	require.NoError(t, err)
	s.patches = patches
	text, err := s.bootstrapOptions().JSON()
	require.NoError(t, err)
	b := &bootstrapv3.Bootstrap{}
	require.NoError(t, protojson.Unmarshal(text, b))
	return b
}

// TestOnlyRequiredStats checks that the metadata MetaUncounted is absent if an annotation or an EnvoyFilter adds
// statistics.
func TestOnlyRequiredStats(t *testing.T) {
	uncounted := func(c Config, patches ...*bootstrapv3.Bootstrap) bool {
		return patchedBootstrap(t, c, patches...).Node.Metadata.Fields[agentapi.MetaUncounted].GetBoolValue()
	}
	c := bootstrapCases(t)["loopback"]
	require.True(t, uncounted(c))
	require.True(t, uncounted(c, &bootstrapv3.Bootstrap{FlagsPath: "/flags"}))
	require.False(t, uncounted(c, &bootstrapv3.Bootstrap{StatsConfig: &metricsv3.StatsConfig{}}))
	c.Workload.Annotations = map[string]string{"sidecar.istio.io/statsInclusionSuffixes": "upstream_rq_2xx"}
	require.False(t, uncounted(c))
}

// TestEvictionIsAMultipleOfTheFlushInterval checks what Envoy requires.
func TestEvictionIsAMultipleOfTheFlushInterval(t *testing.T) {
	evicted := func(patches ...*bootstrapv3.Bootstrap) time.Duration {
		return patchedBootstrap(t, bootstrapCases(t)["loopback"], patches...).GetStatsEvictionInterval().AsDuration()
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
	}), "set by the patch")
}

// TestOneWorkerDoesNotBalance checks that the metadata for one worker disables exact balance, unless the user sets it.
func TestOneWorkerDoesNotBalance(t *testing.T) {
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
		got, _ := s.node.Metadata[agentapi.MetaExactBalance].(string)
		require.Equal(t, want, got, text)
	}
}
