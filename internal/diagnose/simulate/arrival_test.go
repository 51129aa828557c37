package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestArrivalOfGRPC checks that mutual TLS hides nothing that makes a call one of gRPC.
func TestArrivalOfGRPC(t *testing.T) {
	c := Call{To: "10.0.0.1:9090", Protocol: GRPC, Path: "/pkg.S/M", Headers: map[string]string{"X-User": "anna"}}
	got := c.Arrival(&Result{}, &Upstream{TLS: &ClientTLS{SNI: "api", ALPN: []string{"istio"}}}, &Endpoint{Address: "10.1.0.1:9090"}, "spiffe://a/ns/b/sa/c")
	require.Equal(t, HTTPS, got.Protocol)
	require.Equal(t, "POST", got.Method)
	require.Equal(t, "10.0.0.1:9090", got.Host)
	require.Equal(t, map[string]string{"content-type": "application/grpc", "te": "trailers", "x-user": "anna"}, got.Headers)
	require.Equal(t, map[string]string{"X-User": "anna"}, c.Headers, "the call of the client is not changed")

	got = Call{To: "10.0.0.1:80", Method: "PUT"}.Arrival(&Result{}, &Upstream{}, &Endpoint{Address: "10.1.0.1:80"}, "")
	require.Equal(t, []string{"PUT", "http"}, []string{got.Method, string(got.Protocol)})
}
