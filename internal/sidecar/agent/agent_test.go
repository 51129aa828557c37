package agent

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

// TestBecomesReadyWithItsConfiguration runs two sidecars with the same ports on different addresses.
func TestBecomesReadyWithItsConfiguration(t *testing.T) {
	ads := startADS(t, nil, nil, nil)
	one, two := startSidecar(t, ownIP(), ads.address, nil), startSidecar(t, ownIP(), ads.address, func(c *Config) {
		c.Workload.Annotations = map[string]string{ProxyConfigAnnotation: "{concurrency: 1, fileFlushInterval: 0.02s, fileFlushMinSizeKb: 8}"}
	})
	for _, s := range []*sidecar{one, two} {
		s.await("the sidecar to wait for its configuration", func() bool {
			status, body := s.get(DefaultHealthPort, "/healthz/ready")
			return status == http.StatusServiceUnavailable && body == "the control plane at "+ads.address+
				" has not sent everything yet (clusters: 0 accepted, 0 rejected; listeners: 0 accepted, 0 rejected)\n"
		})
	}
	close(ads.open)
	for s, threads := range map[*sidecar]int{one: DefaultConcurrency, two: 1} {
		s.awaitReady()
		status, _ := s.get(DefaultStatusPort, "/healthz/ready")
		require.Equal(t, http.StatusOK, status)
		admin := envoy.NewAdmin(net.JoinHostPort(s.ip, "15000"))
		info, err := admin.ServerInfo(context.Background())
		require.NoError(t, err)
		require.Equal(t, "LIVE", info.State)
		require.Equal(t, threads, info.CommandLine.Concurrency)
		require.NoError(t, admin.Ready(context.Background()))
		admin.Close()
	}
	for s, flush := range map[*sidecar]string{one: "1s", two: "0.020s"} { // /server_info has no flush size
		_, info := s.get(DefaultAdminPort, "/server_info")
		require.Contains(t, info, `"file_flush_interval": "`+flush+`"`)
	}
	ids := map[string]int{}
	for _, n := range ads.seenNodes() {
		ids[n.Id]++
		require.Equal(t, "app.shop", n.Cluster)
		require.Equal(t, "shop", n.Metadata.Fields["NAMESPACE"].GetStringValue())
	}
	require.Equal(t, map[string]int{
		"sidecar~" + one.ip + "~app-1.shop~shop.svc.cluster.local": 1,
		"sidecar~" + two.ip + "~app-1.shop~shop.svc.cluster.local": 1,
	}, ids, "each stream sends its node once")
}

func TestMetrics(t *testing.T) {
	ads := startADS(t, nil, nil, nil)
	close(ads.open)
	s := startSidecar(t, ownIP(), ads.address, nil)
	s.awaitReady()

	status, merged := s.get(DefaultStatusPort, "/stats/prometheus")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, merged, "moonsail_agent_envoy_starts_total 1\n")
	require.Contains(t, merged, "moonsail_agent_envoy_up 1\n")
	require.Contains(t, merged, "istio_agent_scrapes_total 1\n")
	require.Contains(t, merged, "envoy_cluster_manager_cds_update_success{} 1\n")

	status, raw := s.get(DefaultAdminPort, "/stats/prometheus")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, raw, "envoy_server_live")

	status, own := s.get(DefaultPrometheusPort, "/stats/prometheus")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, own, "envoy_server_live")
	require.NotContains(t, own, "moonsail_agent")
	status, _ = s.get(DefaultPrometheusPort, "/config_dump")
	require.Equal(t, http.StatusNotFound, status, "the port does not serve the admin interface")
}

func TestRestartsEnvoyAfterACrash(t *testing.T) {
	ads := startADS(t, nil, nil, nil)
	close(ads.open)
	s := startSidecar(t, ownIP(), ads.address, nil)
	first := s.awaitPid(1)
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	second := s.awaitPid(2)
	require.NotEqual(t, first, second)
	s.awaitReady()
	require.Contains(t, s.log.String(), `level=ERROR msg="Envoy crashed; starting it again" ending="signal: killed (out of memory?)"`)
	_, metrics := s.get(DefaultStatusPort, "/metrics")
	require.Contains(t, metrics, "moonsail_agent_envoy_restarts_total 1\n")
	require.Contains(t, metrics, "moonsail_agent_envoy_starts_total 2\n")

	s.cancel()
	require.NoError(t, s.ended())
	require.False(t, alive(second), "Envoy outlived its agent")
}

func TestEndsWithoutAControlPlane(t *testing.T) {
	s := startSidecar(t, ownIP(), "127.0.0.1:9", func(c *Config) { c.DrainTime = ptr(time.Hour) })
	s.await("Envoy's start", func() bool {
		_, body := s.get(DefaultHealthPort, "/healthz/ready")
		return body == "no connection to the control plane at 127.0.0.1:9 (is it running there? if the address speaks TLS, set --xds-plaintext=false)\n"
	})
	s.cancel()
	require.NoError(t, s.ended())
}

// TestEnvoyEndsWithAKilledAgent kills an agent with SIGKILL.
func TestEnvoyEndsWithAKilledAgent(t *testing.T) {
	ads, ip := startADS(t, nil, nil, nil), ownIP()
	close(ads.open)
	log := &logtext.Buffer{}
	cmd := exec.Command(os.Args[0])
	// A killed agent does not remove its temporary folder.
	cmd.Env = append(os.Environ(), subprocess+"=app-1 "+ip+" "+ads.address, "TMPDIR="+t.TempDir())
	cmd.Stderr = log
	require.NoError(t, cmd.Start())
	s := &sidecar{t: t, ip: ip, log: log}
	pid := s.awaitPid(1)
	require.True(t, alive(pid))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	s.await("Envoy to die with its agent", func() bool { return !running(pid) })
}

// running reports whether a process runs; a zombie, which a container may never reap, does not.
func running(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	after := string(stat)[strings.LastIndex(string(stat), ") ")+2:]
	return len(after) > 0 && after[0] != 'Z' && after[0] != 'X'
}

// TestControlPlaneRestarts checks that Envoy reconnects and lists the versions that it has, and serves meanwhile.
func TestControlPlaneRestarts(t *testing.T) {
	app, ip := startApplication(t), ownIP()
	listeners, clusters := httpRoute(t, ip, appPort, app.server.Listener.Addr())
	ads := startADS(t, listeners, clusters, nil)
	close(ads.open)
	s := startSidecar(t, ip, ads.address, nil)
	s.awaitReady()
	ads.stop()
	answers := request(s, app, "18080")
	close(app.release)
	require.Equal(t, http.StatusOK, await.From(t, answers).status)
	s.awaitReady()

	require.Empty(t, ads.heldVersions())
	again := startADS(t, nil, nil, nil)
	close(again.open)
	again.stop()
	again.serve(t, ads.address, nil)
	s.await("the sidecar to connect again", func() bool { return len(again.heldVersions()) == 2 })
	require.Equal(t, map[string]string{"inbound": "1", "app": "1"}, again.heldVersions())
}

func TestControlPlaneOverTLS(t *testing.T) {
	cert := selfSigned(t)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	require.NoError(t, os.WriteFile(roots, cert.certPEM, 0o600))
	ads := startADS(t, nil, nil, credentials.NewServerTLSFromCert(&cert.tls))
	close(ads.open)
	s := startSidecar(t, ownIP(), ads.address, func(c *Config) {
		c.XDS, c.CA.Address = XDS{Address: ads.address, RootCert: roots}, NoCA
	})
	s.awaitReady()
}

func TestStartErrors(t *testing.T) {
	busy := func(t *testing.T, ip, port string) {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, port))
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
	}
	tests := []struct {
		name  string
		setup func(t *testing.T, ip string, c *Config)
		want  []string
	}{
		{"status port in use", func(t *testing.T, ip string, _ *Config) { busy(t, ip, "15020") },
			[]string{"15020", "is another sidecar running", "--ip", "--status-port"}},
		{"health port in use", func(t *testing.T, ip string, _ *Config) { busy(t, ip, "15021") },
			[]string{"15021", "is another sidecar running", "--health-port"}},
		{"admin port in use", func(t *testing.T, ip string, _ *Config) { busy(t, ip, "15000") },
			[]string{"cannot start Envoy", "an address is in use", "--ip", "--admin-port"}},
		{"Prometheus port in use", func(t *testing.T, ip string, _ *Config) { busy(t, ip, "15090") },
			[]string{"cannot start Envoy", "an address is in use", "--prometheus-port (15090)"}},
		{"address of another machine", func(_ *testing.T, _ string, c *Config) { c.BindAddress = "192.0.2.1" },
			[]string{"192.0.2.1", "does not have that address", "--bind-address"}},
		{"admin address of another machine", func(_ *testing.T, _ string, c *Config) { c.AdminAddress = "192.0.2.1" },
			[]string{"cannot start Envoy", "does not have the address", "--admin-address"}},
		{"no Envoy", func(_ *testing.T, _ string, c *Config) { c.EnvoyPath = "/nowhere/envoy" },
			[]string{"--envoy=/nowhere/envoy", "moonsail envoy install"}},
		{"Envoy refuses an argument", func(_ *testing.T, _ string, c *Config) { c.ComponentLogLevel = "misc:loud" },
			[]string{"cannot start Envoy", "loud"}},
		{"work folder", func(_ *testing.T, _ string, c *Config) { c.WorkDir = "/dev/null/x" },
			[]string{"--work-dir", "/dev/null"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ip := ownIP()
			s := startSidecar(t, ip, "127.0.0.1:9", func(c *Config) { tt.setup(t, ip, c) })
			err := s.ended()
			require.Error(t, err)
			for _, w := range tt.want {
				require.ErrorContains(t, err, w)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	var waits []time.Duration
	for wait := nextBackoff(0, 0); len(waits) < 9; wait = nextBackoff(wait, time.Second) {
		waits = append(waits, wait/time.Millisecond)
	}
	require.Equal(t, []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}, waits)
	require.Equal(t, firstBackoff, nextBackoff(maxBackoff, steadyAfter), "from the start after a steady Envoy")
}
