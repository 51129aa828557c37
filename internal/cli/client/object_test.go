package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestShortKinds checks abbreviations of the resource definitions of Kubernetes and Istio.
func TestShortKinds(t *testing.T) {
	for text, want := range map[string]model.Kind{
		"ap": model.KindAuthorizationPolicy, "pa": model.KindPeerAuthentication, "ra": model.KindRequestAuthentication,
		"cm": model.KindConfigMap, "no": model.KindNode, "vs": model.KindVirtualService,
	} {
		got, ok := parseKind(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
}

func TestGatewayKinds(t *testing.T) {
	for text, want := range map[string]model.Kind{
		"gateway": model.KindGateway, "gateways.networking.istio.io": model.KindGateway, "gw": model.KindGateway,
		"gateway.gateway.networking.k8s.io": model.KindKubernetesGateway, "Gateways.v1.gateway.networking.k8s.io": model.KindKubernetesGateway,
		"httproutes": model.KindHTTPRoute,
	} {
		got, ok := parseKind(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
}
