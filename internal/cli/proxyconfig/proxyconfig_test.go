package proxyconfig

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/test/clitest"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// moonsail runs a command line of moonsail with proxy-config.
func moonsail(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	return clitest.Run(t, clitest.Root(NewCommand()), args...)
}

func resourceOf(typ, name, text string) comparedResource {
	return comparedResource{ConfigResource: explain.ConfigResource{Type: typ, Name: name, Sent: "ACKed", Resource: json.RawMessage(text)}}
}

func TestTables(t *testing.T) {
	c := &comparedConfig{ProxyConfig: &explain.ProxyConfig{Proxy: "a.shop"}, Resources: []comparedResource{
		resourceOf("LDS", "0.0.0.0_80", `{"address": {"socketAddress": {"address": "0.0.0.0", "portValue": 80}},
			"filterChains": [{"filterChainMatch": {"transportProtocol": "raw_buffer", "applicationProtocols": ["h2c"]}, "filters": [{"typedConfig": {"rds": {"routeConfigName": "80"}}}]}],
			"defaultFilterChain": {"filters": [{"typedConfig": {"cluster": "PassthroughCluster"}}]}}`),
		resourceOf("RDS", "80", `{"name": "80", "vhds": {}}`),
		resourceOf("VHDS", "80/a:80", `{"name": "80/a:80", "domains": ["a", "a.shop", "a.shop.svc"], "routes": [
			{"match": {"prefix": "/x", "headers": [{}]}, "route": {"weightedClusters": {"clusters": [{"name": "b", "weight": 9}, {"name": "c", "weight": 1}]}},
			 "metadata": {"filterMetadata": {"istio": {"config": "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/a"}}}},
			{"match": {"path": "/y"}, "redirect": {}}]}`),
		resourceOf("CDS", "outbound|80|v1|a.shop.svc.cluster.local", `{"type": "EDS"}`),
		resourceOf("CDS", "BlackHoleCluster", `{}`),
		resourceOf("EDS", "outbound|80||a", `{"endpoints": [{"locality": {"region": "r", "zone": "z"}, "lbEndpoints": [
			{"healthStatus": "DRAINING", "endpoint": {"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 8080}}}}]}]}`),
	}}
	c.Resources[3].Envoy = &explain.Verdict{State: explain.Differs, Differences: []string{".a: intended 1, actual 2"}}
	c.Resources[4].Sent, c.Resources[4].Message = "refused", "no"
	var b strings.Builder
	require.NoError(t, printConfig(&b, c, explain.AllSections, nil))
	require.Equal(t, `listeners
LISTENER    ADDRESS  PORT  MATCH                        DESTINATION                  SENT   ENVOY
0.0.0.0_80  0.0.0.0  80    Trans: raw_buffer; App: h2c  Route: 80                    ACKed  ?
0.0.0.0_80  0.0.0.0  80    default                      Cluster: PassthroughCluster  ACKed  ?

routes
ROUTES  VIRTUAL HOST  DOMAINS             MATCH           DESTINATION   VIRTUAL SERVICE  SENT   ENVOY
80      (by VHDS)                                                                        ACKed  ?
80      80/a:80       a, a.shop + 1 more  /x* and 1 more  b (9), c (1)  a.shop           ACKed  ?
80      80/a:80       a, a.shop + 1 more  /y              redirect                       ACKed  ?

clusters
SERVICE FQDN              PORT  SUBSET  DIRECTION  TYPE    DESTINATION RULE  SENT     ENVOY
a.shop.svc.cluster.local  80    v1      outbound   EDS     -                 ACKed    differs
BlackHoleCluster          -     -       -          STATIC  -                 refused  ?

endpoints
ENDPOINT       STATUS    OUTLIER CHECK  LOCALITY  CLUSTER         SENT   ENVOY
10.0.0.1:8080  DRAINING  -              r/z       outbound|80||a  ACKed  ?

secrets
no secrets


differs CDS outbound|80|v1|a.shop.svc.cluster.local:
  .a: intended 1, actual 2

refused CDS BlackHoleCluster, held back until it differs:
  no
Envoy was not asked: set --admin to its admin interface
`, b.String())
}

// TestFormats checks what -o prints of a section.
func TestFormats(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"proxy": "a.shop", "resources": [{"type": "CDS", "name": "outbound|80||a.shop.svc.cluster.local", "version": "5f", "sent": "ACKed", "bytes": 42,
			"objects": [{"kind": "Service", "namespace": "shop", "name": "a"}, {"kind": "DestinationRule", "namespace": "shop", "name": "a"}], "resource": {"type": "EDS"}}]}`)
	}))
	defer server.Close()
	for format, want := range map[string]string{
		"wide": "SERVICE FQDN              PORT  SUBSET  DIRECTION  TYPE  DESTINATION RULE  SENT   ENVOY  VERSION  BYTES  OBJECTS\n" +
			"a.shop.svc.cluster.local  80    -       outbound   EDS   -                 ACKed  ?      5f       42     Service/shop/a, DestinationRule/shop/a\n",
		"name":                                "outbound|80||a.shop.svc.cluster.local\n",
		"json":                                `"version": "5f"`,
		"yaml":                                "bytes: 42\n",
		"jsonpath={.resources[*].version}":    "5f\n",
		"jsonpath=resources[0].resource.type": "EDS\n",
	} {
		t.Run(format, func(t *testing.T) {
			status, out, errOut := moonsail(t, "proxy-config", "clusters", "a.shop", "--address", server.URL, "--admin", "none", "-o", format)
			require.Zero(t, status, errOut)
			require.Contains(t, out, want)
		})
	}
}

// TestExtensionsInEnvoy checks that extensions, which are not compared with Envoy's, do not end the command.
func TestExtensionsInEnvoy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"proxy": "a.plugins.shop", "resources": [{"type": "CDS", "name": "b", "sent": "ACKed", "resource": {}},
			{"type": "ECDS", "name": "shop.filter", "sent": "ACKed", "resource": {}}, {"type": "BDS", "name": "bootstrap", "sent": "ACKed", "resource": {}}]}`)
	}))
	defer server.Close()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"configs": []}`) }))
	defer admin.Close()
	status, out, errOut := moonsail(t, "proxy-config", "all", "a.plugins.shop", "--address", server.URL, "--admin", strings.TrimPrefix(admin.URL, "http://"))
	require.Zero(t, status, errOut)
	require.Regexp(t, `(?m)^b .* missing$`, out)
	require.Regexp(t, `(?m)^shop\.filter .* \?$`, out)
}

// TestEmptySections checks that empty sections name the agent for certificates, and for plugins whose modules it fetches.
func TestEmptySections(t *testing.T) {
	shown := func(section string, c *comparedConfig) string {
		var b strings.Builder
		c.hint = func(advice string) string { return advice }
		require.NoError(t, printSection(&b, terminal.Style{}, c, section, false))
		return b.String()
	}
	own := &explain.ProxyConfig{Proxy: "web-1.shop", Agent: "10.0.0.1:15020"}
	require.Equal(t, "no extensions; its agent has the plugins with fetched modules: see 'moonsail proxy-config extensions web-1.plugins.shop'\n",
		shown("extensions", &comparedConfig{ProxyConfig: own}))
	require.Equal(t, "no secrets from the control plane\n", shown("secrets", &comparedConfig{ProxyConfig: own, Secrets: []explain.Secret{{Name: "default"}}}))
	require.Equal(t, "no extensions\n", shown("extensions", &comparedConfig{ProxyConfig: &explain.ProxyConfig{Proxy: "web-1.plugins.shop"}}), "the agent's own stream")
}

func TestAdminAddress(t *testing.T) {
	for _, tc := range []struct{ admin, ip, want string }{
		{"", "127.0.10.3", "127.0.10.3:15000"},
		{"", "10.0.0.1", ""},
		{"", "nonsense", ""},
		{"none", "127.0.10.3", ""},
		{"127.0.0.1:1", "127.0.10.3", "127.0.0.1:1"},
	} {
		f := &flags{admin: tc.admin}
		require.Equal(t, tc.want, f.adminOf(&explain.ProxyConfig{IPs: []string{tc.ip}}))
	}
}

// TestCompleteProxies checks that the shell completes connected proxies, also after aliases.
func TestCompleteProxies(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"proxies": [{"name": "reviews-1", "namespace": "shop"}]}`)
	}))
	defer server.Close()
	for _, args := range [][]string{{"proxy-config", "listeners"}, {"pc", "listener"}, {"proxy-config", "all"}} {
		_, out, _ := moonsail(t, append(append([]string{"__complete"}, args...), "--address", server.URL, "")...)
		require.True(t, strings.HasPrefix(out, "reviews-1.shop\n"), "%v: %s", args, out)
	}
}

// newAdmin starts an admin interface of Envoy that records its requests.
func newAdmin(t *testing.T) (address string, requests *[]string) {
	t.Helper()
	requests = &[]string{}
	level := "warning"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests = append(*requests, r.Method+" "+r.URL.String())
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
	return strings.TrimPrefix(server.URL, "http://"), requests
}

func TestBootstrap(t *testing.T) {
	address, _ := newAdmin(t)
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
	require.Regexp(t, `(?s)"admin".*"dynamic_resources".*"node".*"static_resources".*"stats_config"`, out, "sorted, so that two bootstraps can be compared")
	_, _, errOut = moonsail(t, "pc", "bootstrap", "a.shop", "--admin", "127.0.0.1:1")
	require.Contains(t, errOut, "cannot ask the proxy's Envoy")
	require.NotContains(t, errOut, "none", "the bootstrap has no other source than Envoy")
}

func TestLog(t *testing.T) {
	address, requests := newAdmin(t)
	for _, tc := range []struct {
		levels string
		want   string // the requests after the first
		status int
		out    string
	}{
		{"", "", 0, "LOGGER  LEVEL\nadmin   warning\nrbac    warning\n"},
		{"loud", "", terminal.ExitUsage, `unknown level "loud": use one of trace,`},
		{"rbak:debug", "", terminal.ExitUsage, `Envoy has no logger "rbak"; did you mean "rbac"?`},
		{"nothing-like-it:debug", "", terminal.ExitUsage, `list them without --level`},
		{"rbac:debug,all:warn", "POST /logging?level=warning POST /logging?paths=rbac%3Adebug", 0, "rbac    debug"},
		{"reset", "POST /logging?level=warning", 0, "LOGGER  LEVEL"},
	} {
		*requests = nil
		args := []string{"proxy-config", "log", "a.shop", "--admin", address}
		switch tc.levels {
		case "":
		case "reset":
			args = append(args, "--reset")
		default:
			args = append(args, "--level", tc.levels)
		}
		status, out, errOut := moonsail(t, args...)
		require.Equal(t, tc.status, status, tc.levels)
		require.Contains(t, out+errOut, tc.out)
		require.Equal(t, tc.want, strings.Join((*requests)[min(1, len(*requests)):], " "), tc.levels)
	}
}

// TestLogThroughAgent checks that levels are read through the control plane, but never set.
func TestLogThroughAgent(t *testing.T) {
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
	status, _, errOut = moonsail(t, "proxy-config", "log", "pod/a", "-n", "shop", "--address", server.URL)
	require.Zero(t, status, errOut)
	require.Contains(t, asked, "GET /debug/proxies/a.shop/config/secrets")

	asked = nil
	status, _, errOut = moonsail(t, "proxy-config", "log", "a.shop", "--address", server.URL, "--level", "debug")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "forward its port 15000")
	require.Equal(t, []string{"GET /debug/proxies/a.shop/config/secrets"}, asked)
}

// TestFilters checks which resources the flags choose.
func TestFilters(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resources := map[string]string{
			"clusters": `{"type": "CDS", "name": "outbound|80||a.shop.svc.cluster.local", "resource": {}}, {"type": "CDS", "name": "outbound|90||a.shop.svc.cluster.local", "resource": {}},
				{"type": "CDS", "name": "outbound|80||b.shop.svc.cluster.local", "resource": {}}, {"type": "CDS", "name": "inbound|80||", "resource": {}}, {"type": "CDS", "name": "agent", "resource": {}}`,
			"endpoints": `{"type": "EDS", "name": "outbound|80||a.shop.svc.cluster.local", "resource": {"endpoints": [{"lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 8080}}}}]}]}},
				{"type": "EDS", "name": "outbound|90||b.shop.svc.cluster.local", "resource": {}}`,
			"listeners": `{"type": "LDS", "name": "0.0.0.0_80", "resource": {"address": {"socketAddress": {"address": "0.0.0.0", "portValue": 80}}}},
				{"type": "LDS", "name": "10.0.0.2_8080", "resource": {"address": {"socketAddress": {"address": "10.0.0.2", "portValue": 8080}}}}, {"type": "LDS", "name": "gone"}`,
		}
		fmt.Fprintf(w, `{"proxy": "a.shop", "resources": [%s]}`, resources[path.Base(r.URL.Path)])
	}))
	defer server.Close()
	const a80, a90, b80, b90 = "outbound|80||a.shop.svc.cluster.local\n", "outbound|90||a.shop.svc.cluster.local\n", "outbound|80||b.shop.svc.cluster.local\n", "outbound|90||b.shop.svc.cluster.local\n"
	for args, want := range map[string]string{
		"clusters --fqdn a.shop":                             a80 + a90,
		"clusters --fqdn a.shop.svc.cluster.local --port 80": a80,
		"clusters --port 80":                                 a80 + b80 + "inbound|80||\n",
		"clusters --port 80 --name B.SHOP":                   b80,
		"cluster --port 81":                                  "",
		"endpoints --fqdn b.shop":                            b90,
		"endpoints --port 80":                                a80,
		"endpoints --port 8080":                              a80,
		"listeners --port 8080":                              "10.0.0.2_8080\n",
		"clusters --direction inbound":                       "inbound|80||\n",
		"clusters --direction Outbound --fqdn a.shop":        a80 + a90,
		"clusters --subset v1":                               "",
		"endpoints --cluster " + strings.TrimSpace(b90):      b90,
		"endpoints --cluster b":                              "",
		"endpoints --direction outbound --fqdn b":            b90,
	} {
		t.Run(args, func(t *testing.T) {
			status, out, errOut := moonsail(t, append(append([]string{"proxy-config"}, strings.Fields(args)...), "a.shop", "-o", "name", "--address", server.URL, "--admin", "none")...)
			require.Zero(t, status, errOut)
			require.Equal(t, want, out)
		})
	}
	_, out, _ := moonsail(t, "proxy-config", "clusters", "a.shop", "--fqdn", "c.shop", "--port", "80", "--address", server.URL, "--admin", "none")
	require.Contains(t, out, `no clusters with "c.shop" in the host and with port 80`+"\n")
	for args, want := range map[string]string{
		"endpoints a.shop --status healthy":   "error: --status: not supported: use --name TEXT, a part of the resource's name\n",
		"clusters a.shop --cluster b":         "error: --cluster: not supported: use --name TEXT",
		"clusters a.shop --direction inwards": `error: --direction "inwards": unknown: use inbound or outbound`,
		"listeners a.shop --type HTTP":        "error: --type: not supported: use --name TEXT",
		"all a.shop --fqdn b":                 "error: --fqdn: not supported: use --name TEXT",
		"listeners a.shop --prot 80":          `error: unknown flag: --prot; did you mean "--port"?`,
		"clusters a.shop --port 80000":        `error: --port "80000": out of range`,
	} {
		t.Run(args, func(t *testing.T) {
			status, _, errOut := moonsail(t, append([]string{"proxy-config"}, strings.Fields(args)...)...)
			require.Equal(t, terminal.ExitUsage, status)
			require.Contains(t, errOut, want)
		})
	}
}

// TestFrozenEnvoy checks that an Envoy that does not answer hides nothing but its own part.
func TestFrozenEnvoy(t *testing.T) {
	frozen := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	envoy := httptest.NewServer(http.HandlerFunc(frozen))
	defer envoy.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/proxies/a.shop/config/clusters":
			fmt.Fprint(w, `{"proxy": "a.shop", "id": "a", "ips": ["127.0.0.1"], "agent": "127.0.0.1:15020",
				"resources": [{"type": "CDS", "name": "outbound|80||b", "sent": "ACKed"}]}`)
		case "/debug/proxies/a/envoy/config_dump":
			frozen(w, r)
		}
	}))
	defer server.Close()
	for name, admin := range map[string][]string{
		"through its agent":           nil,
		"through its admin interface": {"--admin", strings.TrimPrefix(envoy.URL, "http://")},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"proxy-config", "clusters", "a.shop", "--timeout", "50ms", "--address", server.URL}, admin...)
			status, out, errOut := moonsail(t, args...)
			require.Zero(t, status, errOut)
			require.Regexp(t, `\nb  .* ACKed +\?\n$`, out)
			require.Equal(t, "note: Envoy did not answer within 50ms, so what it has is unknown: allow more time with --timeout\n", errOut)
			_, out, _ = moonsail(t, append(args, "-o", "json")...)
			require.Contains(t, out, `"unasked": "no answer within 50ms"`)
		})
	}
	status, _, errOut := moonsail(t, "proxy-config", "all", "a.shop", "--timeout", "0s", "--address", server.URL)
	require.Equal(t, terminal.ExitUsage, status)
	require.Contains(t, errOut, "--timeout: must be longer than 0")
}

// TestEndpointHealth checks the health that Envoy reports, by its agent and by its admin interface.
func TestEndpointHealth(t *testing.T) {
	const v2 = "outbound|80|v2|a.shop.svc.cluster.local"
	clusters := `{"cluster_statuses": [{"name": "` + v2 + `", "host_statuses": [` + strings.Join([]string{
		`{"address": {"socket_address": {"address": "10.0.0.1", "port_value": 8080}}, "health_status": {"eds_health_status": "HEALTHY"}}`,
		`{"address": {"socket_address": {"address": "10.0.0.2", "port_value": 8080}}, "health_status": {"eds_health_status": "HEALTHY", "failed_outlier_check": true}}`,
		`{"address": {"socket_address": {"address": "10.0.0.3", "port_value": 8080}}, "health_status": {"eds_health_status": "DRAINING"}}`,
		`{"address": {"pipe": {"path": "/a"}}, "health_status": {"failed_active_degraded_check": true}}`,
	}, ",") + `]}]}`
	endpoint := func(address string) string {
		return `{"endpoint": {"address": {"socketAddress": {"address": "` + address + `", "portValue": 8080}}}}`
	}
	config := `"resources": [{"type": "EDS", "name": "` + v2 + `", "sent": "ACKed", "resource": {"endpoints": [{"lbEndpoints": [` +
		endpoint("10.0.0.1") + "," + endpoint("10.0.0.2") + "," + endpoint("10.0.0.3") + `, {"endpoint": {"address": {"pipe": {"path": "/a"}}}}]}]}}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/proxies/a.shop/config/endpoints":
			fmt.Fprint(w, `{"proxy": "a.shop", "id": "a", "agent": "127.0.0.1:15020", `+config)
		case "/debug/proxies/a/envoy/config_dump":
			fmt.Fprint(w, `{"configs": []}`)
		case "/debug/proxies/a/envoy/clusters":
			fmt.Fprint(w, clusters)
		}
	}))
	defer server.Close()
	envoy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/clusters" {
			fmt.Fprint(w, clusters)
			return
		}
		fmt.Fprint(w, `{"configs": []}`)
	}))
	defer envoy.Close()
	for name, admin := range map[string][]string{"agent": nil, "admin interface": {"--admin", strings.TrimPrefix(envoy.URL, "http://")}} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"proxy-config", "endpoints", "a.shop", "--subset", "v2", "--address", server.URL}, admin...)
			status, out, errOut := moonsail(t, args...)
			require.Zero(t, status, errOut)
			for _, row := range []string{"10.0.0.1:8080 +HEALTHY +OK ", "10.0.0.2:8080 +UNHEALTHY +FAILED ", "10.0.0.3:8080 +DRAINING +OK ", "/a +DEGRADED +OK "} {
				require.Regexp(t, "(?m)^"+row, out)
			}
			_, out, _ = moonsail(t, append(args, "-o", "jsonpath={.resources[*].endpointHealth[1]}")...)
			require.JSONEq(t, `{"address": "10.0.0.2:8080", "status": "UNHEALTHY", "flags": ["failed_outlier_check"]}`, out)
		})
	}
	_, out, _ := moonsail(t, "proxy-config", "endpoints", "a.shop", "--address", server.URL, "--admin", "none")
	require.Regexp(t, "(?m)^10.0.0.2:8080 +HEALTHY +- ", out, "as configured")
}
