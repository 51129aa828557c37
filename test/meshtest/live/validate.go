package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// Validate reports whether Envoy accepts a world's unchanged clusters and listeners. Start does the same for routes. It
// writes the configuration into dir.
func Validate(w *simulate.World, dir string) error {
	binary, err := envoy.Find("")
	if err != nil {
		return err
	}
	ads, err := adsCluster()
	if err != nil {
		return err
	}
	config := &bootstrapv3.Bootstrap{
		Node:             &corev3.Node{Id: "live", Cluster: "live"},
		StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: append([]*clusterv3.Cluster{ads}, w.Clusters...), Listeners: w.Listeners},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: adsSource(ads.GetName())},
	}
	text, err := protojson.Marshal(config)
	if err == nil {
		text, err = withFiles(text, dir)
	}
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "validate.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	out, err := exec.Command(binary.Path, "--mode", "validate", "--config-path", file, "--log-level", "warning").CombinedOutput()
	if !envoy.Validated(out, err, file) {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func adsSource(cluster string) *corev3.ApiConfigSource {
	return &corev3.ApiConfigSource{
		ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
		GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster},
		}}},
	}
}

// adsCluster is named in config sources; no client connects to it.
func adsCluster() (*clusterv3.Cluster, error) {
	packed, err := anypb.New(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
		}},
	})
	return &clusterv3.Cluster{
		Name:                          "ads",
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: packed},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: "ads", Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: loopback(1)}}}},
		}}},
	}, err
}
