package server

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

func (c *client) end() error {
	c.t.Helper()
	select {
	case err := <-c.ended:
		return err
	case r := <-c.got:
		c.t.Fatalf("a response instead of the end: %v", r)
	case <-time.After(testTimeout):
		c.t.Fatal("the stream does not end")
	}
	return nil
}

func TestBadNodesAreRefused(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		for id, want := range map[string]string{
			"":                     "it has 1 parts separated by ~ instead of 4",
			"sidecar~10.0.0.1~a.b": "it has 3 parts separated by ~ instead of 4",
			"ztunnel~10.0.0.1~a.b~b.svc.cluster.local":               `the proxy type "ztunnel" is neither sidecar nor router`,
			"sidecar~ten.0.0.1~a.b~b.svc.cluster.local":              `"ten.0.0.1" is not an IP address`,
			"sidecar~10.0.0.1~nodot~b.svc.cluster.local":             `"nodot" is not <pod>.<namespace>`,
			"sidecar~10.0.0.1~.b~b.svc.cluster.local":                `".b" is not <pod>.<namespace>`,
			"sidecar~10.0.0.1~a.~b.svc.cluster.local":                `"a." is not <pod>.<namespace>`,
			"sidecar~10.0.0.1~a.b~b.svc.cluster.local~one more part": "it has 5 parts",
		} {
			c := h.connectAs(id, "envoy")
			c.subscribe(resource.Cluster)
			err := c.end()
			require.Equal(t, codes.InvalidArgument, status.Code(err), id)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "expected "+idForm)
		}
		c := h.connect("")
		c.node = nil
		c.subscribe(resource.Cluster)
		require.ErrorContains(t, c.end(), "the first request of a stream must have a node")
		require.Empty(t, h.server.Proxies())
	})
}

// TestLargeNodesAreRefused: a node costs memory as long as its stream lives, and labels longer.
func TestLargeNodesAreRefused(t *testing.T) {
	many := func(n int, of func(i int) string) string {
		var list []string
		for i := range n {
			list = append(list, of(i))
		}
		return strings.Join(list, ",")
	}
	labels := func(n int) map[string]any {
		out := map[string]any{}
		for i := range n {
			out[fmt.Sprint("label", i)] = "v"
		}
		return map[string]any{"LABELS": out}
	}
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		for want, node := range map[string]struct {
			id       string
			metadata map[string]any
		}{
			"bytes: the limit is 262144":                                   {metadata: map[string]any{"OWNER": map[string]any{"x": strings.Repeat("x", maxNode)}}},
			"its labels and text metadata have 65541 bytes":                {metadata: map[string]any{"OWNER": strings.Repeat("x", maxKept)}},
			"it has 1025 labels: the limit is 1024":                        {metadata: labels(maxLabels + 1)},
			`INSTANCE_IPS: "somewhere" is not an IP address`:               {metadata: map[string]any{"INSTANCE_IPS": "10.0.0.7, somewhere"}},
			"it has 257 IP addresses: the limit is 256":                    {metadata: map[string]any{"INSTANCE_IPS": many(maxIPs, func(i int) string { return fmt.Sprint("10.1.0.", i) })}},
			"INSTANCE_IPS has 16385 bytes: the limit is 16384":             {metadata: map[string]any{"INSTANCE_IPS": strings.Repeat(" ", longestIPs+1)}},
			"the name has 254 bytes, and the limit is 253":                 {metadata: map[string]any{"NAME": strings.Repeat("n", maxName+1)}},
			"the namespace has 254 bytes, and the limit is 253":            {metadata: map[string]any{"NAMESPACE": strings.Repeat("n", maxName+1)}},
			"the service account has 254 bytes, and the limit is 253":      {metadata: map[string]any{"SERVICE_ACCOUNT": strings.Repeat("n", maxName+1)}},
			`the name "web-$(id)" may only have letters`:                   {metadata: map[string]any{"NAME": "web-$(id)"}},
			`the namespace "-n" may only have letters`:                     {metadata: map[string]any{"NAMESPACE": "-n"}},
			`the service account "a'b" may only have letters`:              {metadata: map[string]any{"SERVICE_ACCOUNT": "a'b"}},
			`the name "a\nb" may only have letters`:                        {id: "sidecar~10.0.0.1~a\nb.shop~shop.svc.cluster.local"},
			"it has 1025 bytes, and the limit is 1024; expected " + idForm: {id: "sidecar~10.0.0.1~a.b~" + strings.Repeat("d", maxID-20)},
		} {
			metadata, err := structpb.NewStruct(node.metadata)
			require.NoError(t, err)
			c := h.connect("")
			c.node.Id, c.node.Metadata = cmp.Or(node.id, nodeID), metadata
			c.subscribe(resource.Cluster)
			err = c.end()
			require.Equal(t, codes.InvalidArgument, status.Code(err), want)
			require.ErrorContains(t, err, want)
		}
		require.Empty(t, h.server.Proxies())
		require.Empty(t, h.server.Disconnected())
	})
}

func TestRefusedBinding(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.bindErr = errors.New("not now")
		c := h.connect("")
		c.subscribe(resource.Cluster)
		err := c.end()
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.ErrorContains(t, err, "app-1.shop: not now")
	})
}

func TestNodeBecomesProxy(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{
		"NAMESPACE": "shop", "NAME": "reviews-v1-abc", "SERVICE_ACCOUNT": "reviews", "CLUSTER_ID": "Kubernetes", "NETWORK": "n1",
		"ISTIO_VERSION": "1.31.0", "INTERCEPTION_MODE": "NONE", "INSTANCE_IPS": "10.0.0.7,fd00::7", "LABELS": map[string]any{"app": "reviews"},
		"POD_PORTS": `[{"name":"http","containerPort":9080,"protocol":"TCP"},{"containerPort":1},{"name":"wrong","containerPort":-3}]`,
		"PROXY_CONFIG": map[string]any{"gatewayTopology": map[string]any{
			"numTrustedProxies": 2, "forwardClientCertDetails": "FORWARD_ONLY", "proxyProtocol": map[string]any{}},
			"connectionSettings": map[string]any{"profile": "EDGE", "httpIdleTimeout": "5s", "globalDownstreamConnectionLimit": 1},
			"proxyHeaders":       map[string]any{"attemptCount": map[string]any{"disabled": true}}},
		"MOONSAIL_TRACING": map[string]any{"sampling": 5, "enableIstioTags": false},
		"ANYTHING":         []any{1, "else"}, "INBOUND_LISTENER_EXACT_BALANCE": "false",
		"DNS_CAPTURE": "true", "DNS_AUTO_ALLOCATE": "true", "HTTP10": "1",
	})
	require.NoError(t, err)
	b, err := proto.Marshal(&corev3.Node{Id: "sidecar~10.0.0.7~reviews-v1-abc.shop~shop.svc.cluster.local", Cluster: "reviews.shop", Metadata: metadata,
		Locality: &corev3.Locality{Region: "r", Zone: "z", SubZone: "s"}, UserAgentName: "envoy"})
	require.NoError(t, err)
	p, agent, err := parseNode(b)
	require.NoError(t, err)
	require.Equal(t, "envoy", agent)
	require.Equal(t, "NONE", p.Metadata["INTERCEPTION_MODE"])
	require.NotContains(t, p.Metadata, "ANYTHING", "it is not a string")
	p.Metadata = nil
	require.Equal(t, &model.Proxy{
		ID: "sidecar~10.0.0.7~reviews-v1-abc.shop~shop.svc.cluster.local", Type: model.ProxySidecar, Name: "reviews-v1-abc", Namespace: "shop",
		IPs: []string{"10.0.0.7", "fd00::7"}, Labels: map[string]string{"app": "reviews"}, ServiceAccount: "reviews", Cluster: "reviews.shop",
		ClusterID: "Kubernetes", Network: "n1", Locality: model.Locality{Region: "r", Zone: "z", Subzone: "s"}, DNSDomain: "shop.svc.cluster.local",
		Interception: model.InterceptNone, IstioVersion: "1.31.0", NamedPorts: map[string]uint32{"http": 9080}, AnyWorker: true,
		DNSCapture: true, AutoAllocate: true, HTTP10: true,
		Topology:    model.Topology{Set: true, TrustedProxies: 2, ClientCertificates: "FORWARD_ONLY", ProxyProtocol: true},
		Connections: `{"httpIdleTimeout":"5s","profile":"EDGE"}`,
		Headers:     model.ProxyHeaders{Set: true, Details: model.DefaultCertificateDetails, NoAttempts: true},
		Tracing:     `{"enableIstioTags":false,"sampling":5}`,
	}, p)
}

// TestPodPorts checks that a name of container ports means its first TCP port, as in Kubernetes.
func TestPodPorts(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{
		"POD_PORTS": `[{"name":"http","containerPort":53,"protocol":"UDP"},{"name":"http","containerPort":8080},{"name":"http","containerPort":9100,"protocol":"TCP"}]`,
	})
	require.NoError(t, err)
	p, err := ProxyOf(&corev3.Node{Id: "sidecar~10.0.0.7~web-1.shop~shop.svc.cluster.local", Metadata: metadata})
	require.NoError(t, err)
	require.Equal(t, map[string]uint32{"http": 8080}, p.NamedPorts)
}

// TestIstioMetadata checks that each key of the list changes the proxy.
func TestIstioMetadata(t *testing.T) {
	values := map[string]any{
		"ANNOTATIONS": map[string]any{model.AnnotationOutbound: "on-demand"}, "INSTANCE_IPS": "10.0.0.7,fd00::7", "LABELS": map[string]any{"app": "a"},
		"POD_PORTS": `[{"name":"http","containerPort":9080,"protocol":"TCP"}]`, "INBOUND_LISTENER_EXACT_BALANCE": "false", "INTERCEPTION_MODE": "NONE",
		"PROXY_CONFIG": map[string]any{"gatewayTopology": map[string]any{"numTrustedProxies": 2}}, "HTTP10": "1",
	}
	for _, key := range IstioMetadata {
		t.Run(key, func(t *testing.T) {
			proxy := func(m map[string]any) *model.Proxy {
				metadata, err := structpb.NewStruct(m)
				require.NoError(t, err)
				b, err := proto.Marshal(&corev3.Node{Id: "sidecar~10.0.0.7~reviews-v1-abc.shop~shop.svc.cluster.local", Metadata: metadata})
				require.NoError(t, err)
				p, _, err := parseNode(b)
				require.NoError(t, err)
				p.Metadata = nil
				return p
			}
			value := values[key]
			if value == nil {
				value = "true"
			}
			require.NotEqual(t, proxy(nil), proxy(map[string]any{key: value}))
		})
	}
}

// TestCertificatesOfAgents: Moonsail's agent states whether it has certificates, Istio's always has some.
func TestCertificatesOfAgents(t *testing.T) {
	config := map[string]any{"discoveryAddress": "istiod.istio-system.svc:15012"}
	for name, test := range map[string]struct {
		metadata map[string]any
		want     bool
	}{
		"Istio's agent":                    {map[string]any{"PROXY_CONFIG": config, "ISTIO_VERSION": "1.31.0"}, true},
		"Moonsail's agent":                 {map[string]any{"PROXY_CONFIG": config, "MOONSAIL_INSTANCE": "a", "SDS": "true"}, true},
		"Moonsail's agent without any":     {map[string]any{"PROXY_CONFIG": config, "MOONSAIL_INSTANCE": "a"}, false},
		"an Envoy that no agent starts":    {map[string]any{"ISTIO_VERSION": "1.31.0"}, false},
		"an Envoy with certificates of it": {map[string]any{"SDS": "true"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			metadata, err := structpb.NewStruct(test.metadata)
			require.NoError(t, err)
			b, err := proto.Marshal(&corev3.Node{Id: "sidecar~10.0.0.7~a.shop~shop.svc.cluster.local", Metadata: metadata})
			require.NoError(t, err)
			p, _, err := parseNode(b)
			require.NoError(t, err)
			require.Equal(t, test.want, p.Identity)
		})
	}
}

// TestNodeOfLaterRequestsIsSkipped: Envoy may repeat its node, even a different one.
func TestNodeOfLaterRequestsIsSkipped(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		require.NoError(t, c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL,
			Node: &corev3.Node{Id: "nonsense"}, ResourceNamesSubscribe: []string{"c1"}}))
		c.take(resource.Endpoints, "c1")
		require.Len(t, h.proxies, 1)
	})
}

func TestUnknownTypeIsIgnored(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		require.NoError(t, c.stream.SendMsg(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "a type that is not served"}))
		c.quiet()
	})
}
