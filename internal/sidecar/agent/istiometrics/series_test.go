package istiometrics

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSeries counts the series of Istio's metrics by reporter.
func TestSeries(t *testing.T) {
	require.Equal(t, map[string]int{"source": 1, "destination": 2}, Series([]byte(`# TYPE envoy_istio_requests_total counter
envoy_istio_requests_total{__call="destination|http|200||-|a|b|c|d"} 1
envoy_istio_requests_total{__call="destination|http|200||-|a|b|c|e",__removed="x"} 1
envoy_istio_requests_total{__call="source|http|200||-|a|b|c|e"} 1
# TYPE envoy_server_live gauge
envoy_server_live{} 1
# TYPE envoy_istio_request_bytes histogram
envoy_istio_request_bytes_bucket{__call="source|http|200||-|a|b|c|e",le="0.5"} 1
# TYPE envoy_istio_build counter
envoy_istio_build{component="proxy"} 1
`)))
	require.Empty(t, Series(nil))
}
