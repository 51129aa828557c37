package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

// adminOfEnvoy answers as an Envoy's admin interface does, and notes what it was told.
func adminOfEnvoy(t *testing.T) (address string, told *[]string) {
	t.Helper()
	told = &[]string{}
	level := "warning"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*told = append(*told, r.Method+" "+r.URL.String())
		switch r.URL.Path {
		case "/config_dump":
			fmt.Fprint(w, `{"configs": [{"@type": "x"}, {"bootstrap": {
				"stats_config": {}, "node": {"id": "sidecar~10.0.0.1~a.shop~x", "locality": {"region": "eu", "zone": "eu-1"}, "metadata": {"INTERCEPTION_MODE": "NONE"},
					"user_agent_build_version": {"version": {"major_number": 1, "minor_number": 40}}},
				"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 15000}}},
				"dynamic_resources": {"ads_config": {"grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}]}},
				"static_resources": {"clusters": [{"name": "xds-grpc"}, {"name": "sds-grpc"}]}}}]}`)
		case "/logging":
			if r.URL.RawQuery != "" {
				level = "debug"
			}
			fmt.Fprintf(w, "active loggers:\n  admin: %s\n  rbac: %s\n", level, level)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), told
}

func TestBootstrapOfAProxy(t *testing.T) {
	address, _ := adminOfEnvoy(t)
	status, out, errOut := moonsail(t, "proxy-config", "bootstrap", "a.shop", "--admin", address)
	require.Zero(t, status, errOut)
	require.Equal(t, `BOOTSTRAP
node id             sidecar~10.0.0.1~a.shop~x
node cluster        -
locality            eu/eu-1
envoy               1.40.0
interception        NONE
service account     -
configuration from  xds-grpc
admin               127.0.0.1:15000
static clusters     xds-grpc, sds-grpc
static listeners    -
static secrets      -
`, out)
	_, out, _ = moonsail(t, "pc", "b", "a.shop", "--admin", address, "-o", "yaml")
	require.Contains(t, out, "\nnode:\n  id: sidecar~10.0.0.1~a.shop~x\n")
	_, out, _ = moonsail(t, "pc", "b", "a.shop", "--admin", address, "-o", "json")
	require.Regexp(t, `(?s)"admin".*"dynamic_resources".*"node".*"static_resources".*"stats_config"`, out, "sorted, so that two of them can be compared")
	_, _, errOut = moonsail(t, "pc", "bootstrap", "a.shop", "--admin", "127.0.0.1:1")
	require.Contains(t, errOut, "the proxy's Envoy cannot be asked")
	require.NotContains(t, errOut, "none", "it is Envoy's own answer that is asked for")
}

func TestLevelsOfAProxysLoggers(t *testing.T) {
	address, told := adminOfEnvoy(t)
	for _, tc := range []struct {
		levels string
		want   string // what Envoy is told behind the first question
		status int
		out    string
	}{
		{"", "", 0, "LOGGER  LEVEL\nadmin   warning\nrbac    warning\n"},
		{"loud", "", terminal.ExitUsage, `unknown level "loud": use one of trace,`},
		{"rbak:debug", "", terminal.ExitUsage, `Envoy has no logger "rbak"; did you mean "rbac"?`},
		{"nothing-like-it:debug", "", terminal.ExitUsage, `without --level all are listed`},
		{"rbac:debug,all:warn", "POST /logging?level=warning POST /logging?paths=rbac%3Adebug", 0, "rbac    debug"},
	} {
		*told = nil
		args := []string{"proxy-config", "log", "a.shop", "--admin", address}
		if tc.levels != "" {
			args = append(args, "--level", tc.levels)
		}
		status, out, errOut := moonsail(t, args...)
		require.Equal(t, tc.status, status, tc.levels)
		require.Contains(t, out+errOut, tc.out)
		require.Equal(t, tc.want, strings.Join((*told)[min(1, len(*told)):], " "), tc.levels)
	}
}

// TestLevelsByTheAgent: they are read by way of the control plane, and never set there.
func TestLevelsByTheAgent(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		switch r.URL.Path {
		case "/debug/proxies/a.shop/config/secrets":
			fmt.Fprint(w, `{"id": "a", "ips": ["10.0.0.1"], "agent": "10.0.0.1:15020"}`)
		case "/debug/proxies/a/envoy/logging":
			fmt.Fprint(w, `{"rbac": "debug", "admin": "warning"}`)
		}
	}))
	defer server.Close()
	status, out, errOut := moonsail(t, "proxy-config", "log", "a.shop", "--address", server.URL)
	require.Zero(t, status, errOut)
	require.Equal(t, "LOGGER  LEVEL\nadmin   warning\nrbac    debug\n", out)
	require.Len(t, asked, 2)

	asked = nil
	status, _, errOut = moonsail(t, "proxy-config", "log", "a.shop", "--address", server.URL, "--level", "debug")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "forward its port 15000")
	require.Equal(t, []string{"GET /debug/proxies/a.shop/config/secrets"}, asked)
}
