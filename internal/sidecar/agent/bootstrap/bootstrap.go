// Package bootstrap writes the bootstrap with which Envoy starts: its node, the admin interface, static clusters for the
// control plane and the agent, the listener for Prometheus, and the statistics that Envoy keeps. The forms are those of
// Istio's bootstrap. Options has all inputs; the package reads no files and no environment.
package bootstrap

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
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

	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// Names of static clusters, as in Istio's bootstrap.
const (
	xdsCluster   = agentapi.XDSCluster
	sdsCluster   = "sds-grpc"
	statsCluster = "prometheus_stats"
)

// JSON returns the bootstrap with all patches, as indented JSON.
func (o *Options) JSON() ([]byte, error) {
	b, err := o.build()
	if err != nil {
		return nil, err
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(o.patch(b))
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	// protojson varies its spaces on purpose; golden files and readers need them regular.
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

// patch merges the patches into b. If a patch changes which statistics Envoy keeps, the node no longer claims that
// Envoy keeps only the required ones.
func (o *Options) patch(b *bootstrapv3.Bootstrap) *bootstrapv3.Bootstrap {
	for _, patch := range o.Patches {
		envoyfilter.MergeBootstrap(b, patch)
		if patch.StatsConfig != nil {
			delete(b.Node.GetMetadata().GetFields(), agentapi.MetaUncounted)
		}
	}
	alignEviction(b)
	return b
}

// alignEviction makes the eviction interval a multiple of the flush interval, in milliseconds: Envoy refuses others. It
// changes only the default eviction interval, for patches that set the flush interval alone.
func alignEviction(b *bootstrapv3.Bootstrap) {
	flush := b.GetStatsFlushInterval().AsDuration().Truncate(time.Millisecond)
	if flush <= 0 || b.GetStatsEvictionInterval().AsDuration() != statsEviction {
		return
	}
	multiple := (statsEviction + flush - 1) / flush * flush
	b.StatsEviction = &bootstrapv3.Bootstrap_StatsEvictionInterval{StatsEvictionInterval: durationpb.New(multiple)}
}

// statsEviction is how long Envoy keeps statistics of a TCP connection after its end; each scrape has them until then.
// Envoy drops them after one or two of these intervals, and keeps their sums. It evicts no other statistics.
const statsEviction = time.Minute

func (o *Options) build() (*bootstrapv3.Bootstrap, error) {
	metadata, err := ToStruct(o.Node.Metadata)
	if err != nil {
		return nil, fmt.Errorf("node metadata: %w", err)
	}
	return &bootstrapv3.Bootstrap{
		Node: &corev3.Node{
			Id:      o.Node.ID,
			Cluster: o.Node.Cluster,
			Locality: &corev3.Locality{
				Region: o.Node.Locality.Region, Zone: o.Node.Locality.Zone, SubZone: o.Node.Locality.Subzone,
			},
			Metadata: metadata,
		},
		DynamicResources: dynamicResources(),
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Clusters:  o.staticClusters(),
			Listeners: []*listenerv3.Listener{o.prometheusListener()},
		},
		Admin:               o.adminInterface(),
		StatsConfig:         o.statsConfig(),
		LayeredRuntime:      o.runtime(),
		OverloadManager:     overloadManager(o.MaxConnections),
		StatsEviction:       &bootstrapv3.Bootstrap_StatsEvictionInterval{StatsEvictionInterval: durationpb.New(statsEviction)},
		DeferredStatOptions: &bootstrapv3.Bootstrap_DeferredStatOptions{EnableDeferredCreationStats: true},
	}, nil
}

// dynamicResources uses one delta ADS stream for everything. It has no fetch timeout, so that Envoy does not become live
// with an empty configuration when the control plane is slow.
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
					// A sidecar reconnects within a second of the control plane's return; Envoy's default is up to
					// 30 s. Envoy applies full jitter, which spreads the reconnects of many sidecars.
					RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
						BaseInterval: durationpb.New(200 * time.Millisecond),
						MaxInterval:  durationpb.New(time.Second),
					}},
				}},
			}},
		},
	}
}

func (o *Options) adminInterface() *bootstrapv3.Admin {
	return &bootstrapv3.Admin{
		Address: socketAddress(o.AdminHost, o.AdminPort),
		AccessLog: []*accesslogv3.AccessLog{{
			Name:       "envoy.access_loggers.file",
			ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(&filelogv3.FileAccessLog{Path: "/dev/null"})},
		}},
		IgnoreGlobalConnLimit: true,
	}
}

// overloadManager limits the connections of clients. 0 is the maximum: without a limit Envoy logs a warning at each start.
func overloadManager(limit int64) *overloadv3.OverloadManager {
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name: "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: pack(
			&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: cmp.Or(limit, math.MaxInt32)})},
	}}}
}

// runtime holds the flags that Istio sets, overridden by ProxyConfig's runtimeValues. An empty value there removes a
// flag.
func (o *Options) runtime() *bootstrapv3.LayeredRuntime {
	flags := map[string]any{
		"re2.max_program_size.error_level":                               envoyformat.MaxRegexProgram,
		"envoy.reloadable_features.http_reject_path_with_fragment":       false,
		"envoy.reloadable_features.fixed_heap_use_allocated":             true,
		"envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update": false, // envoyproxy/envoy#45212: rings not rebuilt
	}
	for k, v := range o.ProxyConfig.GetRuntimeValues() {
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

// ToStruct converts metadata to the type of Envoy's node.
func ToStruct(m map[string]any) (*structpb.Struct, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, protojson.Unmarshal(text, s)
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

// pack cannot fail: this package makes the messages, and they contain valid UTF-8.
func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

func u32(v uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(v) }
