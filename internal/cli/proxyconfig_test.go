package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
)

func resourceOf(typ, name, text string) comparedResource {
	return comparedResource{ConfigResource: explain.ConfigResource{Type: typ, Name: name, Sent: "ACKed", Resource: json.RawMessage(text)}}
}

func TestProxyConfigTables(t *testing.T) {
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
ENDPOINT       STATUS    LOCALITY  CLUSTER         SENT   ENVOY
10.0.0.1:8080  DRAINING  r/z       outbound|80||a  ACKed  ?

secrets
no secrets


differs CDS outbound|80|v1|a.shop.svc.cluster.local:
  .a: intended 1, actual 2

refused CDS BlackHoleCluster, held back until it differs:
  no
Envoy itself was not asked: say where its admin interface is with --admin
`, b.String())
}

// TestWhatTheControlPlaneHasNotSentIsTheAgents: certificates, and plugins whose modules it fetches.
func TestWhatTheControlPlaneHasNotSentIsTheAgents(t *testing.T) {
	shown := func(section string, c *comparedConfig) string {
		var b strings.Builder
		require.NoError(t, printSection(&b, terminal.Style{}, c, section, false))
		return b.String()
	}
	own := &explain.ProxyConfig{Proxy: "web-1.shop", Agent: "10.0.0.1:15020"}
	require.Equal(t, "no extensions; plugins whose modules are fetched are its agent's: 'moonsail proxy-config extensions web-1.plugins.shop'\n",
		shown("extensions", &comparedConfig{ProxyConfig: own}))
	require.Equal(t, "no secrets of the control plane's\n", shown("secrets", &comparedConfig{ProxyConfig: own, Secrets: []explain.Secret{{Name: "default"}}}))
	require.Equal(t, "no extensions\n", shown("extensions", &comparedConfig{ProxyConfig: &explain.ProxyConfig{Proxy: "web-1.plugins.shop"}}), "an agent's own stream")
}

func TestWhereEnvoyIsAsked(t *testing.T) {
	for _, tc := range []struct{ admin, ip, want string }{
		{"", "127.0.10.3", "127.0.10.3:15000"},
		{"", "10.0.0.1", ""},
		{"", "nonsense", ""},
		{"none", "127.0.10.3", ""},
		{"127.0.0.1:1", "127.0.10.3", "127.0.0.1:1"},
	} {
		f := &proxyConfigFlags{admin: tc.admin}
		require.Equal(t, tc.want, f.adminOf(&explain.ProxyConfig{IPs: []string{tc.ip}}))
	}
}

// TestProxiesAreOffered: wherever a proxy is to be named, the shell offers those that are connected.
func TestProxiesAreOffered(t *testing.T) {
	address := controlPlane(t)
	for _, args := range [][]string{{"proxies"}, {"why"}, {"proxy-config", "listeners"}, {"pc", "listener"}, {"proxy-config", "all"}} {
		_, out, _ := moonsail(t, append(append([]string{"__complete"}, args...), "--address", address, "")...)
		require.True(t, strings.HasPrefix(out, "reviews-1.shop\n"), "%v: %s", args, out)
	}
}
