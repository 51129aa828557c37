package configure

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],"users":[{"name":"c","user":{"token":"t"}}]}`, s.URL)), 0o600))
	return file
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
	require.Regexp(t, `^http://127\.0\.0\.1:\d+, 1 object: no problems\n$`, out)
}
