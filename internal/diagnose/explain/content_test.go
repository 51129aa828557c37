package explain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
)

// TestContentIgnoresTheSource checks that an object of a file has the content of the same object in an API server.
func TestContentIgnoresTheSource(t *testing.T) {
	slice := func(source config.Decoder, metadata, pod string) string {
		o, problems := source.FromYAML(fmt.Appendf(nil, `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: shop, labels: {kubernetes.io/service-name: web}%s}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.1.1], targetRef: {kind: Pod, name: %s, namespace: shop}}]`, metadata, pod))
		require.NotNil(t, o, problems)
		return Content(o)
	}
	file := slice(config.Decoder{}, "", "web-1")
	require.NotEmpty(t, file)
	stored := `, resourceVersion: "7", creationTimestamp: "2026-01-01T00:00:00Z"`
	require.Equal(t, file, slice(config.Decoder{PodsListed: true}, stored, "web-1"))
	require.NotEqual(t, file, slice(config.Decoder{}, "", "web-2"))
}
