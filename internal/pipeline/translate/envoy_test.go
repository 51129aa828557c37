package translate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/cluster"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/pipeline/translate/listener"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// envoyBinary returns the path of Envoy. Tests fail without it.
func envoyBinary(t *testing.T) string {
	t.Helper()
	b, err := envoy.Find("")
	require.NoError(t, err)
	return b.Path
}

// TestEnvoyAccepts puts the whole corpus into one static bootstrap and lets Envoy validate it.
func TestEnvoyAccepts(t *testing.T) {
	b := newBootstrap()
	for _, c := range corpus(t) {
		m, err := translators[c.kind()](c.value)
		if err == nil {
			b.add(t, c.title(), m)
		}
	}
	require.NotEmpty(t, b.static.Listeners)
	require.NotEmpty(t, b.static.Clusters)
	requireValid(t, b.message())
}

// TestEnvoyRefuses checks that TestEnvoyAccepts can fail.
func TestEnvoyRefuses(t *testing.T) {
	b := newBootstrap()
	b.add(t, "broken", &routev3.VirtualHost{Name: "a", Domains: []string{"*"}, Routes: []*routev3.Route{{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "a"},
			RetryPolicy: &routev3.RetryPolicy{RetryOn: "5xx", RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{
				{Name: "no.such.predicate"},
			}},
		}},
	}}})
	out, err := validate(t, b.message())
	require.Error(t, err, out)
	require.Contains(t, out, "no.such.predicate")
}

// TestEnvoyLimitsRegexes checks that Envoy takes large expressions that envoyformat takes, and refuses larger ones.
func TestEnvoyLimitsRegexes(t *testing.T) {
	routes := func(patterns ...string) *bootstrap {
		b, host := newBootstrap(), &routev3.VirtualHost{Name: "a", Domains: []string{"*"}}
		for _, p := range patterns {
			host.Routes = append(host.Routes, &routev3.Route{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: p}}},
				Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}},
			})
		}
		b.add(t, "regexes", host)
		return b
	}
	accepted := []string{
		`\pL{17}`, `(\pL|.){17}`, `(?i:\pL){17}`, `\PL{18}`, `\p{Han}{99}`, `[^/]{1000}`, `.{1000}.{1000}`, `(?:a?|b*){1000}`,
		`(?:^a$|\bb\B){50}`, strings.Repeat("a", 28000), `(?:(?i:straße)|\p{Greek}|\s){120}`,
	}
	for _, p := range accepted {
		require.NoError(t, envoyformat.CheckRegex(p), p)
	}
	requireValid(t, routes(accepted...).message())
	large := `(` + strings.Repeat(`\pL`, 16) + `){1000}`
	require.Error(t, envoyformat.CheckRegex(large))
	out, err := validate(t, routes(large).message())
	require.Error(t, err)
	require.Contains(t, out, "RE2 program size of 114004")
}

func requireValid(t *testing.T, m proto.Message) {
	t.Helper()
	out, err := validate(t, m)
	require.NoError(t, err, out)
	require.Contains(t, out, "configuration")
	require.NotContains(t, out, "eprecated field")
}

func validate(t *testing.T, m proto.Message) (string, error) {
	t.Helper()
	text, err := protojson.Marshal(m)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "bootstrap.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	out, err := exec.CommandContext(t.Context(), envoyBinary(t), "--mode", "validate", "-c", path,
		"--concurrency", "1", "--disable-hot-restart", "-l", "warning").CombinedOutput()
	if envoy.Validated(out, err, path) {
		err = nil
	}
	return string(out), err
}

// bootstrap collects resources of all types as static resources.
type bootstrap struct {
	static *bootstrapv3.Bootstrap_StaticResources
	names  map[string]bool
}

func newBootstrap() *bootstrap {
	b := &bootstrap{static: &bootstrapv3.Bootstrap_StaticResources{}, names: map[string]bool{}}
	for _, name := range []string{"sds-grpc", "xds-grpc"} {
		c, err := cluster.Translate(&ir.Cluster{Name: name, Protocol: "http2", Discovery: ir.DiscoverStatic})
		if err != nil {
			panic(err)
		}
		b.static.Clusters = append(b.static.Clusters, c)
	}
	return b
}

// add makes names and ports unique, since test cases may use the same ones.
func (b *bootstrap) add(t *testing.T, title string, m proto.Message) {
	t.Helper()
	switch m := m.(type) {
	case *clusterv3.Cluster:
		c := proto.Clone(m).(*clusterv3.Cluster)
		if b.names[c.Name] {
			c.Name = title
		}
		b.names[c.Name] = true
		b.static.Clusters = append(b.static.Clusters, c)
	case *endpointv3.ClusterLoadAssignment:
		b.static.Clusters = append(b.static.Clusters, &clusterv3.Cluster{
			Name: title, LoadAssignment: m,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		})
	case *listenerv3.Listener:
		l := proto.Clone(m).(*listenerv3.Listener)
		l.Name = title
		b.static.Listeners = append(b.static.Listeners, l)
	case *routev3.VirtualHost:
		b.addRoutes(t, title, &routev3.RouteConfiguration{Name: title, ValidateClusters: envoyproto.False, VirtualHosts: []*routev3.VirtualHost{m}})
	case *routev3.RouteConfiguration:
		b.addRoutes(t, title, m)
	case *routev3.ScopedRouteConfiguration: // a bootstrap cannot contain them; test/e2e serves them
		require.NoError(t, m.ValidateAll(), title)
	default:
		t.Fatalf("%T", m)
	}
}

func (b *bootstrap) addRoutes(t *testing.T, title string, routes *routev3.RouteConfiguration) {
	t.Helper()
	manager := managerOf(t, &ir.HTTPChain{StatPrefix: title, RouteConfig: "unused"})
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
	filter, err := envoyproto.NetworkFilter("envoy.filters.network.http_connection_manager", manager)
	require.NoError(t, err)
	b.static.Listeners = append(b.static.Listeners, &listenerv3.Listener{
		Name: title, Address: envoyproto.Address("127.0.0.1", uint32(20000+len(b.static.Listeners))),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{filter}}},
	})
}

// managerOf translates a chain and returns its connection manager.
func managerOf(t *testing.T, chain *ir.HTTPChain) *hcmv3.HttpConnectionManager {
	t.Helper()
	l, err := listener.Translate(&ir.Listener{Name: "l", Address: "127.0.0.1", Port: 1, Default: &ir.FilterChain{Name: "c", HTTP: chain}})
	require.NoError(t, err)
	manager := &hcmv3.HttpConnectionManager{}
	require.NoError(t, l.DefaultFilterChain.Filters[0].GetTypedConfig().UnmarshalTo(manager))
	return manager
}

func (b *bootstrap) message() *bootstrapv3.Bootstrap {
	return &bootstrapv3.Bootstrap{
		Node:            &corev3.Node{Id: "test", Cluster: "test"},
		StaticResources: b.static,
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "xds-grpc"},
			}}},
		}},
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
			Name: "static",
			LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{
				Fields: map[string]*structpb.Value{"re2.max_program_size.error_level": structpb.NewNumberValue(32768)},
			}},
		}}},
	}
}
