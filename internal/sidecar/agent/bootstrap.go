package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Names of static clusters, as in Istio's bootstrap.
const (
	xdsCluster   = "xds-grpc"
	sdsCluster   = "sds-grpc"
	statsCluster = "prometheus_stats"
)

// Bootstrap is the JSON of Envoy's bootstrap for a configuration.
func Bootstrap(c Config) ([]byte, error) {
	s, err := c.resolve()
	if err != nil {
		return nil, err
	}
	s.workDir = orDefault(s.WorkDir, filepath.Join(os.TempDir(), "moonsail-agent"))
	s.offerModules()
	return s.bootstrapJSON()
}

func (s *settings) bootstrapJSON() ([]byte, error) {
	b, err := s.bootstrap()
	if err != nil {
		return nil, err
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(s.amended(b))
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	// protojson varies its spaces on purpose; goldens and people want them regular.
	var compact, out bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, err
	}
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// statsEviction is when Envoy forgets what connections that ended have carried, of which it has counted the sum:
// after this, or twice as long. Each scrape has them until then. No other statistics are forgotten.
const statsEviction = time.Minute

func (s *settings) bootstrap() (*bootstrapv3.Bootstrap, error) {
	metadata, err := toStruct(s.node.metadata)
	if err != nil {
		return nil, fmt.Errorf("node metadata: %w", err)
	}
	return &bootstrapv3.Bootstrap{
		Node: &corev3.Node{
			Id:      s.node.id,
			Cluster: s.node.cluster,
			Locality: &corev3.Locality{
				Region: s.node.locality.Region, Zone: s.node.locality.Zone, SubZone: s.node.locality.Subzone,
			},
			Metadata: metadata,
		},
		DynamicResources: dynamicResources(),
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Clusters:  s.staticClusters(),
			Listeners: []*listenerv3.Listener{s.prometheusListener()},
		},
		Admin:               s.adminInterface(),
		StatsConfig:         s.statsConfig(),
		LayeredRuntime:      s.runtime(),
		OverloadManager:     overloadManager(),
		StatsEviction:       &bootstrapv3.Bootstrap_StatsEvictionInterval{StatsEvictionInterval: durationpb.New(statsEviction)},
		DeferredStatOptions: &bootstrapv3.Bootstrap_DeferredStatOptions{EnableDeferredCreationStats: true},
	}, nil
}

// dynamicResources: everything by one delta ADS stream. Without a fetch timeout Envoy
// never goes live on an empty configuration because the control plane is slow.
func dynamicResources() *bootstrapv3.Bootstrap_DynamicResources {
	ads := func() *corev3.ConfigSource {
		return &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			InitialFetchTimeout:   durationpb.New(0),
			ResourceApiVersion:    corev3.ApiVersion_V3,
		}
	}
	return &bootstrapv3.Bootstrap_DynamicResources{
		LdsConfig: ads(),
		CdsConfig: ads(),
		AdsConfig: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{
				TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
					ClusterName: xdsCluster,
					// How soon a sidecar is back after the control plane was away (Envoy's
					// default ends at 30 s). The interval is jittered in full, which spreads a herd.
					RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
						BaseInterval: durationpb.New(200 * time.Millisecond),
						MaxInterval:  durationpb.New(time.Second),
					}},
				}},
			}},
		},
	}
}

func (s *settings) adminInterface() *bootstrapv3.Admin {
	return &bootstrapv3.Admin{
		Address: socketAddress(s.adminHost, s.ports.Admin),
		AccessLog: []*accesslogv3.AccessLog{{
			Name:       "envoy.access_loggers.file",
			ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(&filelogv3.FileAccessLog{Path: "/dev/null"})},
		}},
		IgnoreGlobalConnLimit: true,
	}
}

// overloadManager sets no limit, explicitly: without one Envoy warns at each start.
func overloadManager() *overloadv3.OverloadManager {
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name: "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: pack(
			&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: math.MaxInt32})},
	}}}
}

// runtime holds the flags that Istio sets and ProxyConfig's runtimeValues over them; an
// empty value there takes a default away.
func (s *settings) runtime() *bootstrapv3.LayeredRuntime {
	flags := map[string]any{
		"re2.max_program_size.error_level":                               32768,
		"envoy.reloadable_features.http_reject_path_with_fragment":       false,
		"envoy.reloadable_features.fixed_heap_use_allocated":             true,
		"envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update": false, // envoyproxy/envoy#45212: rings not rebuilt
	}
	for k, v := range s.proxyConfig.GetRuntimeValues() {
		switch v {
		case "":
			delete(flags, k)
		case "true", "false":
			flags[k] = v == "true"
		default:
			flags[k] = v
		}
	}
	static, _ := structpb.NewStruct(flags) // these types cannot fail
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{
		{Name: "global config", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: static}},
		{Name: "admin", LayerSpecifier: &bootstrapv3.RuntimeLayer_AdminLayer_{AdminLayer: &bootstrapv3.RuntimeLayer_AdminLayer{}}},
	}}
}

func toStruct(m map[string]any) (*structpb.Struct, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, protojson.Unmarshal(text, s)
}

// socketPath is the path of a "unix:///path" address, else "".
func socketPath(address string) string {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return ""
	}
	return path
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func socketAddress(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// pack cannot fail: the messages are ours and hold valid UTF-8.
func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

func u32(v uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(v) }
