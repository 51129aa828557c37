package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	sidecar "github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/clitest"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// bootstrapOf runs `moonsail agent --print-bootstrap`. It returns the node and the
// address of the control plane.
func bootstrapOf(t *testing.T, args ...string) (node map[string]any, xds string, err error) {
	t.Helper()
	var out bytes.Buffer
	root := clitest.Root(NewCommand())
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"agent", "--print-bootstrap"}, args...))
	if err := root.ExecuteContext(context.Background()); err != nil {
		return nil, "", err
	}
	var bootstrap struct {
		Node            map[string]any
		StaticResources struct {
			Clusters []struct {
				Name           string
				LoadAssignment struct {
					Endpoints []struct {
						LbEndpoints []struct {
							Endpoint struct {
								Address struct {
									SocketAddress struct {
										Address string
										Port    int `json:"port_value"`
									} `json:"socket_address"`
								}
							}
						} `json:"lb_endpoints"`
					}
				} `json:"load_assignment"`
			}
		} `json:"static_resources"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &bootstrap))
	for _, c := range bootstrap.StaticResources.Clusters {
		if c.Name == "xds-grpc" {
			xds = c.LoadAssignment.Endpoints[0].LbEndpoints[0].Endpoint.Address.SocketAddress.Address
		}
	}
	return bootstrap.Node, xds, nil
}

const podYAML = `
kind: Pod
metadata:
  name: reviews-1
  namespace: shop
  labels: {app: reviews}
  annotations: {proxy.istio.io/config: "concurrency: 4"}
spec: {serviceAccountName: reviews}
status: {podIP: 10.0.0.1}
`

func TestInputs(t *testing.T) {
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(pod, []byte(podYAML), 0o600))
	tests := []struct {
		name string
		env  map[string]string
		args []string
		id   string
		meta map[string]any // some of the metadata
		xds  string
	}{
		{
			name: "flags",
			args: []string{"--name", "a-1", "--namespace", "n", "--ip", "127.0.10.3,10.0.0.9", "--labels", "app=a,version=v1",
				"--domain", "mesh.local", "--xds-address", "127.0.0.9:1", "--interception-mode", "NONE", "--concurrency", "0"},
			id: "sidecar~127.0.10.3~a-1.n~n.svc.mesh.local",
			meta: map[string]any{"INSTANCE_IPS": "127.0.10.3,10.0.0.9", "LABELS": map[string]any{"app": "a", "version": "v1"},
				"INTERCEPTION_MODE": "NONE", "PROXY_CONFIG": map[string]any{"concurrency": 0.0}},
			xds: "127.0.0.9",
		},
		{
			name: "environment",
			env: map[string]string{"POD_NAME": "b-1", "POD_NAMESPACE": "n", "INSTANCE_IP": "10.0.0.2", "SERVICE_ACCOUNT": "sa",
				"ISTIO_META_CLUSTER_ID": "c1", "ISTIO_META_OTHER": "x", "ISTIO_METAJSON_LABELS": `{"app":"b"}`,
				"PROXY_CONFIG": "{concurrency: 3, terminationDrainDuration: 9s}", "MOONSAIL_XDS_ADDRESS": "10.9.9.9:15010"},
			id: "sidecar~10.0.0.2~b-1.n~n.svc.cluster.local",
			meta: map[string]any{"SERVICE_ACCOUNT": "sa", "CLUSTER_ID": "c1", "OTHER": "x", "LABELS": map[string]any{"app": "b"},
				"PROXY_CONFIG": map[string]any{"concurrency": 3.0, "terminationDrainDuration": "9s"}},
			xds: "10.9.9.9",
		},
		{
			name: "flags before Pod and environment",
			env:  map[string]string{"MOONSAIL_CONCURRENCY": "5", "ISTIO_META_NETWORK": "env"},
			args: []string{"--pod", pod, "--ip", "127.0.10.8", "--network", "flag"},
			id:   "sidecar~127.0.10.8~reviews-1.shop~shop.svc.cluster.local",
			meta: map[string]any{"SERVICE_ACCOUNT": "reviews", "LABELS": map[string]any{"app": "reviews"}, "NETWORK": "flag",
				"PROXY_CONFIG": map[string]any{"concurrency": 5.0}},
			xds: "127.0.0.1",
		},
		{
			name: "mounted certificates from the environment",
			env:  map[string]string{"FILE_MOUNTED_CERTS": "true"},
			args: []string{"--pod", pod},
			id:   "sidecar~10.0.0.1~reviews-1.shop~shop.svc.cluster.local",
			meta: map[string]any{"SDS": "true"},
			xds:  "127.0.0.1",
		},
		{
			name: "annotation before PROXY_CONFIG",
			env:  map[string]string{"PROXY_CONFIG": "concurrency: 3"},
			args: []string{"--pod", pod},
			id:   "sidecar~10.0.0.1~reviews-1.shop~shop.svc.cluster.local",
			meta: map[string]any{"PROXY_CONFIG": map[string]any{"concurrency": 4.0}},
			xds:  "127.0.0.1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			node, xds, err := bootstrapOf(t, tt.args...)
			require.NoError(t, err)
			require.Equal(t, tt.id, node["id"])
			require.Equal(t, tt.xds, xds)
			metadata := node["metadata"].(map[string]any)
			for k, want := range tt.meta {
				require.Equal(t, want, metadata[k], k)
			}
		})
	}
}

// TestVariablesOfTwoNames checks the flags that a variable of Istio and one of Moonsail set: Moonsail's precedes.
func TestVariablesOfTwoNames(t *testing.T) {
	type values struct{ health, prometheus, bits int }
	istio := map[string]string{"ENVOY_STATUS_PORT": "16021", "ENVOY_PROMETHEUS_PORT": "16090", "WORKLOAD_RSA_KEY_SIZE": "2048"}
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		want values
	}{
		{name: "of Istio", want: values{16021, 16090, 2048}},
		{name: "of Moonsail", env: map[string]string{"MOONSAIL_HEALTH_PORT": "17021", "MOONSAIL_PROMETHEUS_PORT": "17090", "MOONSAIL_RSA_KEY_SIZE": "3072"},
			want: values{17021, 17090, 3072}},
		{name: "command line", args: []string{"--health-port", "18021", "--prometheus-port", "18090", "--rsa-key-size", "4096"},
			want: values{18021, 18090, 4096}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for k, v := range istio {
				t.Setenv(k, v)
			}
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			f := &flags{}
			cmd := f.command()
			var got values
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				c, err := f.build(cmd, os.Environ())
				if err == nil {
					got = values{int(c.Ports.Health), int(c.Ports.Prometheus), c.CA.RSABits}
				}
				return err
			}
			root := clitest.Root(cmd)
			root.SetArgs(append([]string{"agent", "--name", "a-1", "--ip", "10.0.0.1"}, tt.args...))
			require.NoError(t, root.ExecuteContext(t.Context()))
			require.Equal(t, tt.want, got)
		})
	}
}

// TestLinksToServices checks that Services named envoy-prometheus, envoy-status and moonsail-health, for which Kubernetes sets variables
// in each container of their namespace, do not count as settings.
func TestLinksToServices(t *testing.T) {
	for _, name := range []string{"ENVOY_PROMETHEUS_PORT", "ENVOY_STATUS_PORT", "MOONSAIL_HEALTH_PORT", "MOONSAIL_STATUS_PORT"} {
		t.Setenv(name, "tcp://10.0.0.7:9090")
	}
	var out, log bytes.Buffer
	root := clitest.Root(NewCommand())
	root.SetOut(&out)
	root.SetErr(&log)
	root.SetArgs([]string{"agent", "--print-bootstrap", "--name", "a-1", "--ip", "10.0.0.1"})
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "15090")
	require.Contains(t, log.String(), "variable=ENVOY_PROMETHEUS_PORT")
}

// TestFamiliesOfRules checks that the rules intercept IPv6 if the workload, which Envoy's listeners follow, has such an address.
func TestFamiliesOfRules(t *testing.T) {
	for addresses, ipv6 := range map[string]bool{"10.0.0.1": false, "10.0.0.1,fd00::1": true, "fd00::1": true} {
		t.Setenv("INSTANCE_IP", addresses)
		var out bytes.Buffer
		root := clitest.Root(NewCommand())
		root.SetOut(&out)
		root.SetArgs([]string{"agent", "intercept", "--dry-run", "--intercept-with", "iptables"})
		require.NoError(t, root.ExecuteContext(t.Context()))
		require.Equal(t, ipv6, strings.Contains(out.String(), "# ip6tables-restore"), addresses)
	}
}

// TestCapturedDNSServers checks that only questions to the servers of resolv.conf are redirected: those of a resolver
// on this host to its own servers would come back to it.
func TestCapturedDNSServers(t *testing.T) {
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	require.NoError(t, os.WriteFile(resolv, []byte("nameserver 127.0.0.53\nnameserver fd00::10\n"), 0o600))
	var out bytes.Buffer
	root := clitest.Root(NewCommand())
	root.SetOut(&out)
	root.SetArgs([]string{"agent", "intercept", "--dry-run", "--ip", "10.0.0.1,fd00::1", "--capture-dns", "true", "--resolv-conf", resolv})
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), `	chain dns {
		ip daddr 127.0.0.53/32 tcp dport 53 counter redirect to :15053
		ip daddr 127.0.0.53/32 udp dport 53 counter redirect to :15053
		ip6 daddr fd00::10/128 tcp dport 53 counter redirect to :15053
		ip6 daddr fd00::10/128 udp dport 53 counter redirect to :15053
	}
`)

	root = clitest.Root(NewCommand())
	root.SetArgs([]string{"agent", "intercept", "--dry-run", "--capture-dns", "true", "--resolv-conf", "absent"})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), "--capture-dns: cannot read the DNS servers: open absent: no such file or directory: correct --resolv-conf")
}

// TestEarlyEnd checks Istio's variable for the end of a drain. Without it a sidecar ends early.
func TestEarlyEnd(t *testing.T) {
	for value, full := range map[string]bool{"": false, "true": false, "false": true} {
		t.Setenv("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", value)
		f := &flags{}
		cmd := f.command()
		var got bool
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			c, err := f.build(cmd, os.Environ())
			if err == nil {
				got = c.FullDrain
			}
			return err
		}
		root := clitest.Root(cmd)
		root.SetArgs([]string{"agent", "--name", "a-1", "--ip", "10.0.0.1"})
		require.NoError(t, root.ExecuteContext(t.Context()))
		require.Equal(t, full, got, value)
	}
}

func TestInputErrors(t *testing.T) {
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(pod, []byte(podYAML), 0o600))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "set --name (or POD_NAME)"},
		{[]string{"--name", "a"}, "set --ip (or INSTANCE_IP)"},
		{[]string{"--pod", pod, "--name", "other"}, "no Pod named other: correct --name: the file has reviews-1"},
		{[]string{"--pod", "absent.yaml"}, "--pod absent.yaml: cannot read it"},
		{[]string{"--pod", pod, "--proxy-config", "concurrency: x"}, "--proxy-config (PROXY_CONFIG): invalid ProxyConfig"},
		{[]string{"--pod", pod, "--log-level", "loud"}, `--log-level "loud": unknown level`},
		{[]string{"--pod", pod, "--log-format", "xml"}, `--log-format "xml": unknown format`},
	} {
		_, _, err := bootstrapOf(t, tt.args...)
		require.ErrorContains(t, err, tt.want)
	}
}

// TestSignals sends signals to this process, which handles them as `moonsail agent` does.
func TestSignals(t *testing.T) {
	c := &sidecar.Config{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release := handleSignals(c, cancel)
	defer release()
	send := func(s syscall.Signal) { require.NoError(t, syscall.Kill(os.Getpid(), s)) }
	expect := func(what string, done func() bool) {
		t.Helper()
		require.Eventually(t, done, time.Minute, time.Millisecond, what)
	}
	aborted := func() bool {
		select {
		case <-c.Abort:
			return true
		default:
			return false
		}
	}

	send(syscall.SIGUSR1)
	require.Equal(t, syscall.SIGUSR1, await.From(t, c.Signals), "passed to Envoy")
	require.NoError(t, ctx.Err())
	send(syscall.SIGTERM)
	expect("the first signal drains", func() bool { return ctx.Err() != nil })
	require.False(t, aborted())
	send(syscall.SIGINT)
	expect("the second signal aborts", aborted)
}

func TestDrain(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		err    string
		out    string
	}{
		"all proxies ACKed":     {http.StatusOK, "", "deregistered: 12 proxies ACKed in 8ms\n"},
		"some proxies have not": {http.StatusGatewayTimeout, "exit status 3", "deregistered: 12 proxies ACKed in 8ms\n"},
		"refused":               {http.StatusForbidden, "deregistration failed: deregistered", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != sidecar.DrainPath {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte("deregistered: 12 proxies ACKed in 8ms\n"))
			}))
			defer s.Close()
			var out bytes.Buffer
			cmd := NewCommand()
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetOut(&out)
			cmd.SetArgs([]string{"drain", "--address", s.Listener.Addr().String()})
			err := cmd.ExecuteContext(t.Context())
			require.Equal(t, tc.out, out.String())
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.err)
		})
	}
	run := func(ctx context.Context, args ...string) error {
		cmd := NewCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"drain", "--address", "127.0.0.1:9"}, args...))
		return cmd.ExecuteContext(ctx)
	}
	require.ErrorContains(t, run(t.Context()), "127.0.0.1:9: the sidecar does not answer")
	require.ErrorContains(t, run(t.Context(), "--after=1ms"), "127.0.0.1:9: the sidecar does not answer")
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, run(ended, "--after=1h"), context.Canceled)
}
