package meshtest

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dnscommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	dfpcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestNamesResolveToFamiliesOfProxy checks which addresses of a name Envoy calls: those of the IP families that the proxy has.
func TestNamesResolveToFamiliesOfProxy(t *testing.T) {
	objects := objectsOf(t,
		`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: each, namespace: shop}, spec: {hosts: [each.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}}`,
		`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: one, namespace: shop}, spec: {hosts: [one.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS_ROUND_ROBIN}}`,
		`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: any, namespace: shop}, spec: {hosts: ["*.example.org"], ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}], resolution: DYNAMIC_DNS}}`,
		`{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: gw, namespace: shop}, spec: {selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}, {port: {number: 443, name: tls, protocol: TLS}, hosts: ["*"], tls: {mode: PASSTHROUGH}}]}}`,
		`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: gw, namespace: shop}, spec: {hosts: ["a.example.org"], gateways: [gw], http: [{route: [{destination: {host: "*.example.org", port: {number: 80}}}]}], tls: [{match: [{sniHosts: [a.example.org]}], route: [{destination: {host: "*.example.org", port: {number: 443}}}]}]}}`,
	)
	const (
		four = dnscommonv3.DnsLookupFamily_V4_PREFERRED
		six  = dnscommonv3.DnsLookupFamily_AUTO
		all  = dnscommonv3.DnsLookupFamily_ALL
	)
	for name, test := range map[string]struct {
		ips       []string
		each, one dnscommonv3.DnsLookupFamily
		dynamic   clusterv3.Cluster_DnsLookupFamily
	}{
		"IPv4":       {ips: []string{"10.99.0.1"}, each: four, one: four, dynamic: clusterv3.Cluster_V4_PREFERRED},
		"IPv6":       {ips: []string{"fd00::9"}, each: six, one: six, dynamic: clusterv3.Cluster_AUTO},
		"dual stack": {ips: []string{"10.99.0.1", "fd00::9"}, each: four, one: all, dynamic: clusterv3.Cluster_ALL},
	} {
		for _, typ := range []model.ProxyType{model.ProxySidecar, model.ProxyRouter} {
			t.Run(name+"/"+string(typ), func(t *testing.T) {
				p := &Proxy{Type: typ, Name: "p", Namespace: "shop", IP: test.ips[0], OtherIPs: test.ips[1:], Labels: map[string]string{"app": "gw"}}
				resources, failures := engine.Compile(model.DefaultMesh(), objects, p.Model("cluster.local"))
				require.Empty(t, failures)
				dns := map[string]dnscommonv3.DnsLookupFamily{}
				var caches []*dfpcommonv3.DnsCacheConfig
				for _, c := range decoded[clusterv3.Cluster](t, resources[resource.Cluster]) {
					for _, d := range within[*dnsv3.DnsCluster](t, c) {
						dns[c.Name] = d.DnsLookupFamily
					}
					caches = append(caches, within[*dfpcommonv3.DnsCacheConfig](t, c)...)
				}
				for _, l := range decoded[listenerv3.Listener](t, resources[resource.Listener]) {
					caches = append(caches, within[*dfpcommonv3.DnsCacheConfig](t, l)...)
				}
				require.Equal(t, map[string]dnscommonv3.DnsLookupFamily{
					"outbound|80||each.example.com": test.each, "outbound|80||one.example.com": test.one,
				}, dns)
				require.Len(t, caches, 4, "two clusters and two filters")
				for _, c := range caches {
					require.Equal(t, test.dynamic, c.DnsLookupFamily)
					require.Equal(t, caches[0].Name, c.Name)
				}
			})
		}
	}
}

// within lists the messages of a type in m, also in packed messages.
func within[M proto.Message](t *testing.T, m proto.Message) (out []M) {
	t.Helper()
	require.NoError(t, protorange.Range(m.ProtoReflect(), func(at protopath.Values) error {
		if m, ok := at.Index(-1).Value.Interface().(protoreflect.Message); ok {
			if found, ok := m.Interface().(M); ok {
				out = append(out, found)
			}
		}
		return nil
	}))
	return out
}
