package meshtest

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestIdleTimeouts checks after which time idle connections are closed: by default Envoy's, less for connections to
// unknown destinations, and never with 0s.
func TestIdleTimeouts(t *testing.T) {
	const (
		bytes     = "outbound|3306||db.shop.svc.cluster.local"
		unknown   = "PassthroughCluster"
		unknownIn = "InboundPassthroughCluster"
		web       = "outbound|80||web.shop.svc.cluster.local"
	)
	never, minute, five := time.Duration(0), time.Minute, 5*time.Minute
	for name, test := range map[string]struct {
		rule     string                    // of both services
		baseline *model.ConnectionPool     // of the mesh
		requests map[string]*time.Duration // by cluster
		bytes    *time.Duration            // of the TCP proxy to the database
	}{
		"default": {requests: map[string]*time.Duration{web: nil, unknown: &five, unknownIn: &five}},
		"never": {
			rule: `{tcp: {idleTimeout: 0s}}`, bytes: &never,
			requests: map[string]*time.Duration{web: &never, bytes: &never, unknown: &five, unknownIn: &five},
		},
		"of TCP and HTTP": {
			rule: `{tcp: {idleTimeout: 0s}, http: {idleTimeout: 60s}}`, bytes: &never,
			requests: map[string]*time.Duration{web: &minute, unknown: &five},
		},
		"of the mesh": {
			baseline: &model.ConnectionPool{HTTPIdleTimeout: &minute},
			requests: map[string]*time.Duration{web: &minute, unknown: &minute, unknownIn: &minute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			mesh := model.DefaultMesh()
			mesh.Baseline.ConnectionPool = test.baseline
			docs := []string{
				`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}}`,
				`{apiVersion: v1, kind: Service, metadata: {name: db, namespace: shop}, spec: {clusterIP: 10.1.0.2, ports: [{name: tcp, port: 3306}]}}`,
			}
			if test.rule != "" {
				docs = append(docs, `{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: all, namespace: shop}, spec: {host: "*.shop.svc.cluster.local", trafficPolicy: {connectionPool: `+test.rule+`}}}`)
			}
			p := &Proxy{Type: model.ProxySidecar, Name: "p", Namespace: "shop", IP: "10.99.0.1"}
			resources, failures := engine.Compile(mesh, objectsOf(t, docs...), p.Model("cluster.local"))
			require.Empty(t, failures)
			requests := map[string]*durationpb.Duration{}
			for _, c := range decoded[clusterv3.Cluster](t, resources[resource.Cluster]) {
				for _, o := range within[*upstreamhttpv3.HttpProtocolOptions](t, c) {
					requests[c.Name] = o.GetCommonHttpProtocolOptions().GetIdleTimeout()
				}
			}
			for cluster, want := range test.requests {
				requireTimeout(t, want, requests[cluster], cluster)
			}
			proxies := 0
			for _, l := range decoded[listenerv3.Listener](t, resources[resource.Listener]) {
				for _, o := range within[*tcpproxyv3.TcpProxy](t, l) {
					if o.GetCluster() == bytes {
						requireTimeout(t, test.bytes, o.IdleTimeout, l.Name)
						proxies++
					}
				}
			}
			require.Equal(t, 1, proxies)
		})
	}
}

func requireTimeout(t *testing.T, want *time.Duration, got *durationpb.Duration, of string) {
	t.Helper()
	if want == nil {
		require.Nil(t, got, of)
		return
	}
	require.NotNil(t, got, of)
	require.Equal(t, *want, got.AsDuration(), of)
}
