package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestIstioctlNames checks the names of istioctl that need no control plane.
func TestIstioctlNames(t *testing.T) {
	valid, invalid := filepath.Join(t.TempDir(), "valid.yaml"), filepath.Join(t.TempDir(), "invalid.yaml")
	const route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\nspec: {hosts: [a.example.com], %s: [{route: [{destination: {host: b.example.com}}]}]}\n"
	require.NoError(t, os.WriteFile(valid, fmt.Appendf(nil, route, "http"), 0o600))
	require.NoError(t, os.WriteFile(invalid, fmt.Appendf(nil, route, "htp"), 0o600))
	for _, tc := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"x"}, 0, "moonsail experimental [command]"},
		{[]string{"exp", "--help"}, 0, "describe"},
		{[]string{"validate", "-f", valid}, 0, "no problems"},
		{[]string{"validate", "-f", invalid}, 1, `did you mean "http"?`},
		{[]string{"validate"}, 2, "--filename is missing: use 'moonsail validate -f FILE'"},
		{[]string{"kube-inject", "--help"}, 0, "moonsail inject -f FILE"},
		{[]string{"x", "precheck", "--help"}, 0, "Check a cluster before an installation"},
		{[]string{"authz", "check", "web-1.shop"}, 2, "use 'moonsail experimental authz check PROXY'"},
		{[]string{"x", "authz"}, 0, "moonsail experimental authz [command]"},
		{[]string{"x", "check-inject", "-n", "shop"}, 2, "use 'moonsail inject -f FILE'"},
		{[]string{"x", "injector", "list"}, 2, "use 'moonsail tag list'"},
		{[]string{"admin", "log"}, 2, "use --log-level of 'moonsail serve'"},
		{[]string{"ztunnel-config", "all"}, 2, "no ambient mode"},
		{[]string{"x", "describe", "configmap", "reviews"}, 2, `"configmap": not a kind that can be described: use pod, deployment or another workload, or service`},
		{[]string{"x", "wait", "virtualservice", "reviews.shop", "--for", "delete"}, 2, "use 'kubectl wait --for=delete'"},
		{[]string{"x", "wait", "virtualservice", "reviews.shop", "--threshold", "2"}, 2, "--threshold 2: out of range"},
		{[]string{"x", "nonsense"}, 2, `unknown command "nonsense"`},
		{[]string{"x", "descrbe"}, 2, `did you mean "describe"?`},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			status, out, errOut := moonsail(t, tc.args...)
			require.Equal(t, tc.status, status, out+errOut)
			require.Contains(t, out+errOut, tc.says)
		})
	}
}

// pagesOf serves a control plane with a sidecar.
func pagesOf(t *testing.T) string {
	t.Helper()
	pages := map[string]string{
		"/version":     `{"version":"1.2.3","go":"go1","platform":"linux/amd64"}`,
		"/debug/list":  `["syncz","registryz","edsz"]`,
		"/debug/syncz": `[{"proxy":"web-1.shop"}]`,
		"/debug/proxies": `{"proxies":[{"id":"sidecar~1~web-1~c","name":"web-1","namespace":"shop","version":"1.40.0","workload":"deployment/web"},
			{"id":"m","name":"web-2","namespace":"shop","version":"1.40.0","workload":"deployment/web"},
			{"id":"d","name":"db-0","namespace":"data","version":"1.40.0","workload":"statefulset/db"},{"id":"a","name":"a-1","namespace":"a","version":"1.40.0","workload":"api"},{"id":"b","name":"b-1","namespace":"b","version":"1.40.0","workload":"deployment/api"}]}`,
		"/debug/proxies/web-1.shop":                   `{"proxy":{"id":"sidecar~1~web-1~c","name":"web-1","namespace":"shop","version":"1.40.0"},"node":{"ServiceAccount":"web"}}`,
		"/debug/proxies/sidecar~1~web-1~c/config/all": describedConfig,
		"/debug/registryz": `[{"hostname":"bank.example.com","Attributes":{"Name":"bank.example.com","Namespace":"ops"},"ports":[{"name":"tls","port":443,"protocol":"TLS"}]},
			{"hostname":"web.shop.svc.cluster.local","Attributes":{"Name":"web","Namespace":"shop"},"ports":[{"name":"http","port":80,"protocol":"HTTP"}]},
			{"hostname":"api.a.svc.cluster.local","Attributes":{"Name":"api","Namespace":"a"}},{"hostname":"api.b.svc.cluster.local","Attributes":{"Name":"api","Namespace":"b"}}]`,
		"/debug/instancesz":                          `{"web-1.shop":[{"hostname":"web.shop.svc.cluster.local","Attributes":{"Name":"web","Namespace":"shop"},"ports":[{"name":"http","port":80,"protocol":"HTTP"}]}]}`,
		"/debug/store/VirtualService":                `{"objects":[{"kind":"VirtualService","namespace":"shop","name":"reviews"}]}`,
		"/debug/proxies/web-1.shop/config/all":       describedConfig,
		"/debug/proxies/web-1.shop/config/listeners": describedConfig,
		"/debug/proxies/web-1.shop/envoy/stats":      "envoy_server_live 1\n",
		"/debug/proxies/db-0.data/envoy/stats":       "envoy_server_live 2\n",
		"/debug/why/web-1.shop":                      `{"verdict":{"text":"403 denied by AuthorizationPolicy shop/none at db-0.data","ends":[{"outcome":"answered","status":403,"percent":100}]},"from":"web-1.shop","outbound":{"result":{}}}`,
		"/debug/explain/Pod/data/db-0":               `{"object":{"kind":"Pod","namespace":"data","name":"db-0"},"exists":true}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := pages[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			if r.URL.Path == "/debug/edsz" { // a page of istiod's
				_, _ = w.Write([]byte("Proxy not connected to this Pilot instance. It may be connected to another instance.\n"))
				return
			}
			if rest, ok := strings.CutPrefix(strings.NewReplacer("/why/", "/proxies/", "/policies/", "/proxies/").Replace(r.URL.Path), "/debug/proxies/"); ok {
				proxy, _, _ := strings.Cut(rest, "/")
				fmt.Fprintf(w, `{"error":"proxy \"%s\" is not connected","next":"see 'moonsail proxies' for connected proxies","page":"/debug/proxies"}`, proxy)
				return
			}
			kind, name := "VirtualService", strings.TrimPrefix(r.URL.Path, "/debug/explain/VirtualService/")
			body = fmt.Sprintf(`{"error":"%s %s: not found","next":"run 'moonsail analyze' to find why an object is not used","page":"/debug/store/VirtualService","missing":"VirtualService/%s"}`, kind, name, name)
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const describedConfig = `{"id":"n","resources":[
	{"type":"LDS","name":"virtualInbound","objects":[{"kind":"PeerAuthentication","namespace":"istio-system","name":"default"},{"kind":"Service","namespace":"shop","name":"web"}]},
	{"type":"CDS","name":"outbound|80|v1|web.shop.svc.cluster.local","objects":[{"kind":"DestinationRule","namespace":"shop","name":"web"}]},
	{"type":"VHDS","name":"80/web.shop.svc.cluster.local:80","objects":[{"kind":"VirtualService","namespace":"shop","name":"web"}]},
	{"type":"CDS","name":"outbound|80||other.shop.svc.cluster.local","objects":[{"kind":"DestinationRule","namespace":"shop","name":"other"}]}]}`

func TestIstioctlCommands(t *testing.T) {
	address := pagesOf(t)
	for _, tc := range []struct {
		args   string
		status int
		says   []string
		not    string
	}{
		{"x describe pod web-1.shop", 0, []string{
			"Pod: web-1.shop\n", "Service: web.shop.svc.cluster.local\n   Port: http 80/HTTP\n   VirtualService: web.shop\n   DestinationRule: web.shop\n",
			"Policies and configuration:\n   PeerAuthentication: default.istio-system\n", "Service account: web\n",
		}, "other"},
		{"x describe pod/web-1 -n shop -o json", 0, []string{`"pod": "web-1.shop"`}, ""},
		{"x describe service web.shop", 0, []string{
			"Service: web.shop.svc.cluster.local\n   Port: http 80/HTTP\n   VirtualService: web.shop\n   DestinationRule: web.shop\n   Pods: web-1.shop\n   As seen by: web-1.shop\n",
			"Policies and configuration of 1 Pod:\n   PeerAuthentication: default.istio-system\n",
		}, "other"},
		{"x describe svc/web -n shop -o jsonpath={.pods[0]}", 0, []string{"web-1.shop\n"}, ""},
		{"x describe service bank.example.com", 0, []string{"Service: bank.example.com\n   Port: tls 443/TLS\n   Pods: none with a connected sidecar\n   As seen by: web-1.shop\n"}, "Policies"},
		{"x describe service api", 2, []string{"service api: it is in the namespaces a, b: choose one with --namespace"}, ""},
		{"x describe service webb", 1, []string{`no such service; did you mean "web"?`}, ""},
		{"x describe web-9.shop", 1, []string{`did you mean "web-1.shop"?`}, ""},
		{"x internal-debug --list", 0, []string{"syncz\nregistryz\nedsz\n"}, ""},
		{"x internal-debug syncz", 0, []string{`"proxy":"web-1.shop"`}, ""},
		{"x internal-debug syncs", 2, []string{`debug page "syncs": unknown; did you mean "syncz"?: use one of syncz, registryz, edsz`}, ""},
		{"x internal-debug edsz?proxyID=web-9.shop", 1, []string{`proxy "web-9.shop" is not connected; did you mean "web-1.shop"?`, "next:  see 'moonsail proxies --address " + address + "'"}, ""},
		{"x internal-debug", 2, []string{"PAGE is missing: use one of syncz, registryz, edsz"}, ""},
		{"x envoy-stats web-1.shop", 0, []string{"envoy_server_live 1"}, ""},
		{"x envoy-stats deploy/web", 0, []string{"envoy_server_live 1", "note: deployment web has 2 connected proxies: this is about web-1.shop"}, ""},
		{"x envoy-stats deployments.apps/web -n shop", 0, []string{"envoy_server_live 1"}, ""},
		{"x envoy-stats sts/db.data", 0, []string{"envoy_server_live 2"}, "note:"},
		{"x envoy-stats svc/web", 0, []string{"envoy_server_live 1"}, "note:"},
		{"x envoy-stats pod/web-1 -n shop", 0, []string{"envoy_server_live 1"}, "note:"},
		{"x envoy-stats deploy/webb", 1, []string{`deployment webb: it has no connected proxy; did you mean "web"?`, "next:  see 'moonsail proxies --address " + address + "' for"}, ""},
		{"x envoy-stats sts/web", 1, []string{`statefulset web: it has no connected proxy`}, ""},
		{"x envoy-stats deploy/api", 2, []string{"deployment api: exists in several namespaces (a, b): choose one as deployment/api.NAMESPACE"}, ""},
		{"x envoy-stats cm/web", 2, []string{`"cm/web": not a proxy: use NAME.NAMESPACE, pod/NAME, deployment/NAME`}, ""},
		{"x envoy-stats web-1.shop -n data", 1, []string{`proxy "web-1.shop.data" is not connected; did you mean "web-1.shop"?`}, ""},
		{"x envoy-stats web-1 -n data", 1, []string{`proxy "web-1.data" is not connected; did you mean "web-1.shop"?`}, ""},
		{"x describe deployment web -n shop", 0, []string{"Pod: web-1.shop\n", "note: deployment web.shop has 2"}, ""},
		{"x internal-debug syncz?proxyID=deploy/web", 0, []string{`"proxy":"web-1.shop"`, "this is about web-1.shop"}, ""},
		{"proxies deploy/web", 0, []string{"web-1.shop\n"}, "web-2"},
		{"why deploy/web http://db.data/", 0, []string{"=> 403 denied by AuthorizationPolicy shop/none at db-0.data\n", "this is about web-1.shop"}, ""},
		{"why web-1 http://db.data/ -n shop", 0, []string{"=> 403 denied"}, "note:"},
		{"explain sts/db", 0, []string{"Pod/data/db-0"}, ""},
		{"explain sts/dbb", 1, []string{`statefulset dbb: it has no connected proxy; did you mean "db"?`}, ""},
		{"explain vs/shop/reviews -n bank", 2, []string{`"vs/shop/reviews": is of another namespace than --namespace bank`}, ""},
		{"x ps", 0, []string{"NAME", "CLUSTER", "ECDS", "web-1.shop"}, "NAMESPACE"},
		{"version", 0, []string{"control plane version:  1.2.3 go1 linux/amd64 (", "data plane version:     Envoy 1.40.0 (5 proxies)"}, ""},
		{"version --short", 0, []string{"data plane version:     Envoy 1.40.0 (5 proxies)"}, ""},
		{"version -o json", 0, []string{`"controlPlanes": [`, `"proxies": 5`}, ""},
		{"explain virtualservice/revews -n shop", 1, []string{`did you mean "reviews"?`, "next:  run 'moonsail analyze'"}, "GET"},
		{"explain virtualservice/reviews -n bank", 1, []string{"did you mean the one of namespace shop?"}, "GET"},
		{"explain virtalservice/reviews", 2, []string{`"virtalservice": unknown kind; did you mean "virtualservice"?: use one of `}, ""},
		{"explain virtalservices/reviews", 2, []string{`did you mean "virtualservice"?`}, ""},
	} {
		t.Run(tc.args, func(t *testing.T) {
			status, out, errOut := moonsail(t, append(strings.Fields(tc.args), "--address", address)...)
			require.Equal(t, tc.status, status, out+errOut)
			for _, s := range tc.says {
				require.Contains(t, out+errOut, s)
			}
			if tc.not != "" {
				require.NotContains(t, out+errOut, tc.not)
			}
			require.NotContains(t, errOut, "/debug/", "users know no pages")
		})
	}
}

// TestUnknownProxy checks that each command about a proxy names it if it is not connected, and the next step. Users know no pages.
func TestUnknownProxy(t *testing.T) {
	address := pagesOf(t)
	more := map[string][]string{ // arguments after the first proxy
		"moonsail why":                         {"http://reviews"},
		"moonsail proxy-config rootca-compare": {"web-1.shop"},
		"moonsail bug-report":                  {"--file", t.TempDir() + "/report.tar.gz"},
	}
	first := map[string][]string{"moonsail experimental describe": {"pod"}}
	tried := 0
	walk(NewRootCommand(), func(cmd *cobra.Command) {
		if !strings.Contains(cmd.Use, "PROXY") && !strings.HasPrefix(cmd.Use, "why FROM") {
			return
		}
		tried++
		args := append(append(strings.Fields(cmd.CommandPath())[1:], first[cmd.CommandPath()]...), "web-9.shop")
		args = append(args, more[cmd.CommandPath()]...)
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			status, out, errOut := moonsail(t, append(args, "--address", address)...)
			require.Equal(t, 1, status, out+errOut)
			require.Contains(t, errOut, `error: proxy "web-9.shop" is not connected; did you mean "web-1.shop"?`)
			require.Contains(t, errOut, "next:  see 'moonsail proxies --address "+address+"' for connected proxies")
			require.NotContains(t, out+errOut, "/debug")
		})
	})
	require.Greater(t, tried, 10)
}

// walk calls visit for each command that runs.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		if sub.Runnable() {
			visit(sub)
		}
		walk(sub, visit)
	}
}

// TestFlagsOfInstall checks istioctl's names of flags.
func TestFlagsOfInstall(t *testing.T) {
	status, out, errOut := moonsail(t, "manifest", "--image", "moonsail:1", "-r", "blue", "-i", "mesh")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "  name: moonsail-blue\n  namespace: mesh\n")
	status, _, errOut = moonsail(t, "install", "--image", "moonsail:1", "-y", "-r", "blue", "-i", "mesh", "--kubeconfig", "/nonexistent")
	require.Equal(t, 1, status, errOut)
	require.Contains(t, errOut, "no such file")
}
