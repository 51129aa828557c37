package callstats

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCallRoundTrip(t *testing.T) {
	c := Call{
		Reporter: Source, Protocol: "http", Code: "200", GRPC: "0", Flags: "UF", Service: "reviews.shop.svc.cluster.local",
		Principal: "spiffe://td/ns/shop/sa/web", PeerPrincipal: "spiffe://td/ns/shop/sa/reviews", Peer: "reviews-v1;shop;reviews;v1;Kubernetes",
	}
	back, ok := ParseCall(c.Text())
	require.True(t, ok)
	require.Equal(t, c, back)
}

func TestParseCallDropsUnknownValues(t *testing.T) {
	c, ok := ParseCall("source|tcp|||-|;PassthroughCluster;|-|-|-")
	require.True(t, ok)
	require.Equal(t, Call{Reporter: Source, Protocol: "tcp", Flags: "-", Service: ";PassthroughCluster;"}, c, "no flags are a value")
	_, ok = ParseCall("few|parts")
	require.False(t, ok)
}

func TestWorkloadRoundTrip(t *testing.T) {
	for text, w := range map[string]Workload{
		"reviews-v1;shop;reviews;v1;Kubernetes":         {"reviews-v1", "shop", "reviews", "v1", "Kubernetes", "reviews", "v1"},
		"reviews-v1;shop;reviews;v1;Kubernetes;rev;2":   {"reviews-v1", "shop", "reviews", "v1", "Kubernetes", "rev", "2"},
		"reviews-v1;shop;reviews;latest;Kubernetes":     {"reviews-v1", "shop", "reviews", Latest, "Kubernetes", "reviews", Latest},
		"reviews-v1;shop;reviews;latest;Kubernetes;a;b": {"reviews-v1", "shop", "reviews", Latest, "Kubernetes", "a", "b"},
	} {
		require.Equal(t, text, w.Text())
		require.Equal(t, w, ParseWorkload(text))
	}
	require.Zero(t, ParseWorkload("a;b"))
	latest := Workload{Name: "w", Namespace: "shop", Service: "s", Revision: Latest, App: "s", Version: Latest}
	require.Equal(t, "w;shop;s;;", latest.EndpointText())
}

func TestServiceRoundTrip(t *testing.T) {
	for text, s := range map[string][3]string{
		"reviews.shop.svc.cluster.local":     {"reviews.shop.svc.cluster.local", "reviews", "shop"},
		"api.example.com;egress;shop":        {"api.example.com", "egress", "shop"},
		";PassthroughCluster;":               {"", "PassthroughCluster", ""},
		"a.other.svc.cluster.local;a;here":   {"a.other.svc.cluster.local", "a", "here"},
		"api.example.com;api.example.com;ns": {"api.example.com", "api.example.com", "ns"},
	} {
		require.Equal(t, text, ServiceText(s[0], s[1], s[2]))
		host, name, namespace := ParseService(text)
		require.Equal(t, s, [3]string{host, name, namespace})
	}
}
