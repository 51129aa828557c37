package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	health1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/test/await"
)

// Ports of the Gateway API's listeners, which have no addresses.
const listenerCalls, listenerTLS = 18191, 18544

// certificateHost is in the certificate of the backend that speaks TLS.
const certificateHost = "example.com"

// outsideService is a Service of shop with one endpoint, which has no sidecar.
func outsideService(name, protocol string, at net.Addr) string {
	tcp, _ := at.(*net.TCPAddr)
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop}
spec: {ports: [{name: %[2]s, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: %[2]s, port: %[4]d}]
endpoints: [{addresses: [%[3]s]}]`, name, protocol, tcp.IP, tcp.Port)
}

// gatewayOfAPI has one listener for calls, and one for TLS that is passed through.
func gatewayOfAPI() string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec:
  gatewayClassName: moonsail
  listeners:
  - {name: calls, port: %d, protocol: HTTP, hostname: %s, allowedRoutes: {namespaces: {from: All}}}
  - {name: tls, port: %d, protocol: TLS, hostname: %s, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: health, namespace: shop}
spec:
  parentRefs: [{name: edge, namespace: edge}]
  rules:
  - matches: [{method: {service: grpc.health.v1.Health, method: Check}}]
    backendRefs: [{name: health, port: 80}]
  - matches: [{method: {service: absent}}]
    backendRefs: [{name: absent, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: secret, namespace: shop}
spec:
  parentRefs: [{name: edge, namespace: edge}]
  hostnames: [%s]
  rules: [{backendRefs: [{name: secret, port: 80}]}]`, listenerCalls, webHost, listenerTLS, certificateHost, certificateHost)
}

// serveHealth serves gRPC's health checks.
func serveHealth(t *testing.T) net.Addr {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, served := grpc.NewServer(), make(chan error, 1)
	health1.RegisterHealthServer(s, health.NewServer())
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, await.From(t, served))
	})
	return ln.Addr()
}

// TestRoutesOfTheGatewayAPI checks that a GRPCRoute routes calls by method, and a TLSRoute connections by SNI.
func TestRoutesOfTheGatewayAPI(t *testing.T) {
	e := startEdge(t)
	secret := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(secret.Close)
	e.apply(e.config("server", gatewayOfAPI(), outsideService("health", "grpc", serveHealth(t)), outsideService("secret", "tls", secret.Listener.Addr()))...)

	conn, err := grpc.NewClient(fmt.Sprintf("%s:%d", e.gateway.ip, listenerCalls), grpc.WithAuthority(webHost), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	call := func(method string, answer *health1.HealthCheckResponse) error {
		ctx, cancel := context.WithTimeout(t.Context(), callLimit)
		defer cancel()
		return conn.Invoke(ctx, method, &health1.HealthCheckRequest{}, answer, grpc.WaitForReady(true)) // the listener may have no routes yet
	}
	answer := &health1.HealthCheckResponse{}
	require.NoError(t, call(health1.Health_Check_FullMethodName, answer))
	require.Equal(t, health1.HealthCheckResponse_SERVING, answer.GetStatus())
	for method, want := range map[string]codes.Code{"/grpc.health.v1.Health/Other": codes.Unimplemented, "/absent/Any": codes.Unavailable} {
		err := call(method, &health1.HealthCheckResponse{})
		require.Equal(t, want, status.Code(err), "%s: %v", method, err)
	}

	roots := x509.NewCertPool()
	roots.AddCert(secret.Certificate())
	dial := func(name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), callLimit)
		defer cancel()
		d := tls.Dialer{Config: &tls.Config{ServerName: name, RootCAs: roots, MinVersion: tls.VersionTLS12}}
		c, err := d.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", e.gateway.ip, listenerTLS))
		if err == nil {
			err = c.Close()
		}
		return err
	}
	eventually(t, "the backend's own certificate is shown", func() bool { return dial(certificateHost) == nil }, e.gateway.log.String)
	err = dial("other.example.com")
	require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), "no route has that name: %v", err)
	e.requireNothingHeld()
}
