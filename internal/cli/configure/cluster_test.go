package configure

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

// kinds are the lists of resources that are read from each cluster.
var kinds = map[string]string{
	"configmaps": "ConfigMapList", "namespaces": "NamespaceList", "nodes": "NodeList", "pods": "PodList", "secrets": "SecretList",
	"endpointslices": "EndpointSliceList", "ingresses": "IngressList", "ingressclasses": "IngressClassList",
}

// cluster starts an API server with one Service, and returns a kubeconfig for it.
func cluster(t *testing.T) string {
	t.Helper()
	const service = `{"metadata":{"name":"reviews","namespace":"shop"},"spec":{"ports":[{"name":"http","port":80}]}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch path := r.URL.Path; path {
		case "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`)
		case "/api/v1/namespaces/istio-system/configmaps/moonsail-injection":
			fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"moonsail-injection"},"data":{"config":"image: registry.example.com/moonsail:0.1.0\ncni: {enabled: true}\nclusterID: cluster-7\n"}}`)
		case "/api/v1/namespaces/istio-system/configmaps/moonsail-injection-blue":
			fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"moonsail-injection-blue"},"data":{"config":"image: registry.example.com/moonsail:blue\n"}}`)
		case "/api/v1/namespaces/istio-system/configmaps/moonsail-injection-green", "/api/v1/namespaces/istio-system/configmaps/moonsail-injection-prod", "/api/v1/namespaces/mesh/configmaps/moonsail-injection":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		case "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/istio-revision-tag-prod":
			fmt.Fprint(w, `{"metadata":{"labels":{"istio.io/rev":"blue"}}}`)
		case "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/istio-revision-tag-green", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/istio-revision-tag-default":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		case "/api/v1/namespaces/istio-system/configmaps":
			item := map[string]string{
				"metadata.name=istio-blue": `{"metadata":{"name":"istio-blue","namespace":"istio-system"},"data":{"mesh":"trustDomian: blue"}}`,
				"metadata.name=istio":      `{"metadata":{"name":"istio","namespace":"istio-system"},"data":{"mesh":"defaultConfig: {concurrency: 7}"}}`,
			}[r.URL.Query().Get("fieldSelector")]
			fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, item)
		case "/api/v1/services":
			fmt.Fprintf(w, `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, service)
		default:
			kind := kinds[path[strings.LastIndex(path, "/")+1:]]
			version := strings.TrimPrefix(strings.TrimPrefix(path[:strings.LastIndex(path, "/")], "/apis/"), "/api/")
			if strings.Contains(version, "/namespaces/") {
				version = version[:strings.Index(version, "/namespaces/")]
			}
			fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, kind, version)
		}
	}))
	t.Cleanup(s.Close)
	return kubeconfigOf(t, s.URL)
}

// kubeconfigOf returns a kubeconfig for an API server.
func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],"users":[{"name":"c","user":{"token":"t"}}]}`, server)), 0o600))
	return file
}

// serverOf returns the address in a kubeconfig.
func serverOf(t *testing.T, kubeconfig string) string {
	t.Helper()
	var config struct {
		Clusters []struct {
			Cluster struct{ Server string }
		}
	}
	text, err := os.ReadFile(kubeconfig)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &config))
	return config.Clusters[0].Cluster.Server
}

// TestFilesAgainstACluster checks that the cluster has what the files do not, that nothing is elsewhere then, and that only
// problems of the files are reported.
func TestFilesAgainstACluster(t *testing.T) {
	kubeconfig := cluster(t)
	route := func(host string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\n" +
			"spec: {hosts: [web.example.com], gateways: [mesh], http: [{route: [{destination: {host: " + host + "}}]}]}\n"
	}
	status, out, errOut := withInput(t, route("reviews"), "analyze", "-", "--kubeconfig", kubeconfig)
	require.Zero(t, status, out+errOut)
	require.Regexp(t, `^1 file against http://127\.0\.0\.1:\d+, 1 object: no problems\n$`, out)

	status, out, _ = withInput(t, route("ratings"), "analyze", "-", "--kubeconfig", kubeconfig, "--context", "c")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, out, "error: VirtualService/shop/a: spec.http[0].route[0].destination.host: service ratings.shop.svc.cluster.local: not found: create a Service")
	require.NotContains(t, out, "Service/shop/reviews")

	status, out, _ = withInput(t, route("ratings"), "analyze", "-")
	require.Zero(t, status, out)
	require.Contains(t, out, "[MS1010]")

	t.Setenv("KUBECONFIG", kubeconfig)
	status, out, errOut = moonsail(t, "analyze")
	require.Zero(t, status, out+errOut)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+, 2 objects: no problems\n$`, out)
}

// TestMeshConfigOfARevision checks that a revision is judged by its own MeshConfig, if it has one, as its control plane does.
func TestMeshConfigOfARevision(t *testing.T) {
	t.Setenv("KUBECONFIG", cluster(t))
	for name, tc := range map[string]struct {
		args []string
		own  bool
	}{
		"none":            {nil, false},
		"default":         {[]string{"-r", "default"}, false},
		"with its own":    {[]string{"--revision", "blue"}, true},
		"without its own": {[]string{"-r", "green"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, out, errOut := moonsail(t, append([]string{"analyze"}, tc.args...)...)
			require.Equal(t, tc.own, strings.Contains(out, "trustDomian"), out+errOut)
		})
	}
}

// TestRevisionOfObjects checks that objects with the label of another revision are not judged.
func TestRevisionOfObjects(t *testing.T) {
	const route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop, labels: {istio.io/rev: green}}\n" +
		"spec: {hosts: [web.example.com], http: [{timeout: soon, route: [{destination: {host: reviews}}]}]}\n"
	for revision, failed := range map[string]bool{"green": true, "blue": false} {
		status, out, errOut := withInput(t, route, "analyze", "-", "--revision", revision, "--allow-empty")
		require.Equal(t, failed, status == terminal.ExitFailed, out+errOut)
	}
}

// TestFlagsOfIstioctl checks istioctl's names and spelling of flags.
func TestFlagsOfIstioctl(t *testing.T) {
	kubeconfig := cluster(t)
	t.Setenv("KUBECONFIG", kubeconfig)
	const route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\n" +
		"spec: {hosts: [web.example.com], gateways: [mesh], http: [{route: [{destination: {host: ratings}}]}]}\n"
	for name, tc := range map[string]struct {
		args   []string
		status int
		out    string
	}{
		"failure-threshold": {[]string{"--failure-threshold", "Info"}, terminal.ExitFailed, "[MS1010]"},
		"output-threshold":  {[]string{"--output-threshold", "Error"}, 0, "no problems"},
		"use-kube":          {[]string{"--use-kube"}, terminal.ExitFailed, "not found: create a Service"},
		"use-kube=false":    {[]string{"--use-kube=false"}, 0, "[MS1010]"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := withInput(t, route, append([]string{"analyze", "-"}, tc.args...)...)
			require.Equal(t, tc.status, status, out+errOut)
			require.Contains(t, out, tc.out)
		})
	}
}

// TestDiffServerSide checks that diff takes the objects of a change as the API server would store them.
func TestDiffServerSide(t *testing.T) {
	refuse := false
	target, err := url.Parse(serverOf(t, cluster(t)))
	require.NoError(t, err)
	plain := httputil.NewSingleHostReverseProxy(target)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/v1":
			fmt.Fprint(w, `{"resources":[{"name":"services/status","kind":"Service"},{"name":"services","kind":"Service","namespaced":true}]}`)
		case r.Method == http.MethodPatch && refuse:
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","message":"port: is taken","code":422}`)
		case r.Method == http.MethodPatch:
			if r.URL.Query().Get("dryRun") != "All" || r.URL.Path != "/api/v1/namespaces/shop/services/reviews" {
				http.Error(w, r.URL.String(), http.StatusTeapot)
				return
			}
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"reviews","namespace":"shop","managedFields":[{"manager":"kubectl"}]},"spec":{"ports":[{"name":"http","port":80},{"name":"admin","port":90}]}}`)
		default:
			plain.ServeHTTP(w, r)
		}
	}))
	defer s.Close()
	t.Setenv("KUBECONFIG", kubeconfigOf(t, s.URL))
	const change = "apiVersion: v1\nkind: Service\nmetadata: {name: reviews}\nspec: {ports: [{name: http, port: 80}]}\n"

	status, out, errOut := withInput(t, change, "diff", "-n", "shop", "-f", "-")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "compared with the cluster at http://127.0.0.1:")
	require.Contains(t, out, "no object differs\n", "as it is written")
	status, out, errOut = withInput(t, change, "diff", "-n", "shop", "-f", "-", "--server-side")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "changed Service/shop/reviews (-:1)\n", "with what the API server adds")

	refuse = true
	status, _, errOut = withInput(t, change, "diff", "-n", "shop", "-f", "-", "--server-side")
	require.Equal(t, exitDiffFailed, status)
	require.Contains(t, errOut, "the API server does not accept Service: port: is taken")
	require.Contains(t, errOut, "-:1")
	status, _, errOut = withInput(t, change, "diff", shopDir, "-f", "-", "--server-side")
	require.Equal(t, exitDiffFailed, status)
	require.Contains(t, errOut, "--server-side applies -f CHANGE to the cluster")
}
