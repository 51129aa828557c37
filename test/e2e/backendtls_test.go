package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
)

const routeToBackend = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: secret, namespace: shop}
spec:
  parentRefs: [{name: edge, namespace: edge, sectionName: calls}]
  rules: [{backendRefs: [{name: secret, port: 80}]}]`

func backendPolicy(hostname string) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: secret, namespace: shop}
spec:
  targetRefs: [{group: "", kind: Service, name: secret, sectionName: http}]
  validation: {hostname: %s, caCertificateRefs: [{group: "", kind: ConfigMap, name: backends}]}`, hostname)
}

// backendOf returns a backend with TLS and a certificate of an authority for certificateHost. It counts requests, and
// records the name of the last TLS handshake.
func backendOf(t *testing.T, root *catest.Root) (s *httptest.Server, requests *atomic.Int64, asked *atomic.Value) {
	t.Helper()
	pair, err := root.Pair(time.Hour, nil, []string{certificateHost})
	require.NoError(t, err)
	requests, asked = &atomic.Int64{}, &atomic.Value{}
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		asked.Store(r.TLS.ServerName)
		w.WriteHeader(http.StatusTeapot)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*pair}, MinVersion: tls.VersionTLS12}
	s.Config.SetKeepAlivesEnabled(false) // connections stay when CAs change
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, requests, asked
}

// TestBackendTLSPolicy checks that a gateway uses TLS to a backend that a policy targets, and accepts its certificate
// if it matches the CAs and the name of the policy. Without CAs, or with another name, the gateway must send nothing.
func TestBackendTLSPolicy(t *testing.T) {
	e := startEdge(t)
	root, err := catest.NewRoot("backends")
	require.NoError(t, err)
	other, err := catest.NewRoot("others")
	require.NoError(t, err)
	backend, requests, asked := backendOf(t, root)
	apply := func(documents ...string) {
		e.apply(e.config("server", append(documents, gatewayOfAPI(), routeToBackend, outsideService("secret", "http", backend.Listener.Addr()))...)...)
	}
	call := func() (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/", e.gateway.ip, listenerCalls), http.NoBody)
		require.NoError(t, err)
		req.Host, req.Close = webHost, true
		resp, err := (&http.Client{Timeout: callLimit}).Do(req)
		if err != nil {
			return 0, err.Error()
		}
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode, e.gateway.log.String()
	}

	taken := func() {
		apply(backendPolicy(certificateHost), authorities("shop", "backends", root))
		e.requireStatus(http.StatusTeapot, "it is of the CAs, and has the name", call)
		require.Equal(t, certificateHost, asked.Load())
	}
	refused := func(why string, documents ...string) {
		apply(documents...)
		e.requireStatus(http.StatusServiceUnavailable, why, call)
		before := requests.Load()
		for range 5 {
			status, _ := call()
			require.Equal(t, http.StatusServiceUnavailable, status, why)
		}
		require.Equal(t, before, requests.Load(), why)
	}
	refused("there are no CAs", backendPolicy(certificateHost))
	taken()
	refused("it is of none of the CAs", backendPolicy(certificateHost), authorities("shop", "backends", other))
	taken()
	refused("its name is another one", backendPolicy("other."+certificateHost), authorities("shop", "backends", root))
	taken()
	refused("the CAs are gone", backendPolicy(certificateHost))
	apply()
	e.requireStatus(http.StatusBadRequest, "it does not take plain text", call)
	e.requireNothingHeld()
}
