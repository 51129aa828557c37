package kubetest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Proxy forwards requests to the API server as its administrator, and answers 502 while the server is down.
func (c *Cluster) Proxy(t testing.TB) *httputil.ReverseProxy {
	t.Helper()
	config := c.REST(t)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	target, err := url.Parse(config.Host)
	require.NoError(t, err)
	p := httputil.NewSingleHostReverseProxy(target)
	p.Transport, p.FlushInterval = transport, -1
	p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	p.ErrorLog = log.New(io.Discard, "", 0)
	return p
}

// StandBefore serves h in front of an API server until the test ends, and writes a kubeconfig for it. end must end
// requests that are in progress.
func StandBefore(t testing.TB, h http.Handler, end func()) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		end()
		server.CloseClientConnections()
		server.Close()
	})
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{"c": {Server: server.URL}}, AuthInfos: map[string]*api.AuthInfo{"u": {}},
		Contexts: map[string]*api.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, kubeconfig))
	return kubeconfig
}
