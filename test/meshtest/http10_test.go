package meshtest

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestHTTP10 checks that each connection manager of sidecars and gateways accepts HTTP/1.0 if the mesh or the proxy asks for it,
// and else none.
func TestHTTP10(t *testing.T) {
	objects := objectsOf(t,
		`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.1.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}}`,
		`{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: gw, namespace: shop}, spec: {selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}`,
		`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: gw, namespace: shop}, spec: {hosts: ["*"], gateways: [gw], http: [{route: [{destination: {host: web}}]}]}}`,
	)
	for name, test := range map[string]struct{ mesh, proxy, want bool }{
		"neither": {}, "the mesh": {mesh: true, want: true}, "the proxy": {proxy: true, want: true},
	} {
		for _, typ := range []model.ProxyType{model.ProxySidecar, model.ProxyRouter} {
			t.Run(name+"/"+string(typ), func(t *testing.T) {
				mesh := model.DefaultMesh()
				mesh.HTTP10 = test.mesh
				p := &Proxy{Type: typ, Name: "p", Namespace: "shop", IP: "10.99.0.1", Labels: map[string]string{"app": "web"}, HTTP10: test.proxy}
				if typ == model.ProxyRouter {
					p.Labels["app"] = "gw"
				}
				all, failures := engine.Compile(mesh, objects, p.Model("cluster.local"))
				require.Empty(t, failures)
				managers := managersOf(t, all[resource.Listener])
				require.NotEmpty(t, managers)
				for _, m := range managers {
					require.Equal(t, test.want, m.GetHttpProtocolOptions().GetAcceptHttp_10(), m.StatPrefix)
				}
			})
		}
	}
}

// objectsOf decodes documents of one object each.
func objectsOf(t *testing.T, docs ...string) (out []model.Object) {
	t.Helper()
	for _, doc := range docs {
		o, problems := config.Decoder{}.FromYAML([]byte(doc))
		require.Empty(t, problems)
		out = append(out, o)
	}
	return out
}

// decoded returns the messages of resources of one type.
func decoded[R any, P interface {
	*R
	proto.Message
}](t *testing.T, list []*resource.Encoded) (out []P) {
	t.Helper()
	for _, r := range list {
		m := P(new(R))
		require.NoError(t, proto.Unmarshal(r.Value(), m))
		out = append(out, m)
	}
	return out
}

// managersOf lists the HTTP connection managers of listeners.
func managersOf(t *testing.T, listeners []*resource.Encoded) (out []*hcmv3.HttpConnectionManager) {
	t.Helper()
	for _, l := range decoded[listenerv3.Listener](t, listeners) {
		chains := l.FilterChains
		if l.DefaultFilterChain != nil {
			chains = append(chains, l.DefaultFilterChain)
		}
		for _, c := range chains {
			for _, f := range c.Filters {
				m := &hcmv3.HttpConnectionManager{}
				if f.GetTypedConfig().MessageIs(m) {
					require.NoError(t, f.GetTypedConfig().UnmarshalTo(m))
					out = append(out, m)
				}
			}
		}
	}
	return out
}
