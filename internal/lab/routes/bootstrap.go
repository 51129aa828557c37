package routes

import (
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
)

// xdsCluster is the control plane in bootstraps of agents.
const xdsCluster = "xds-grpc"

// sidecar is the bootstrap of an agent's Envoy, except that it listens nowhere and its admin interface is a socket. The
// measurements depend on it: an Envoy with all statistics uses twice the CPU for its clusters.
func sidecar(admin, xds string) (*bootstrapv3.Bootstrap, error) {
	text, err := agent.Bootstrap(agent.Config{
		Workload:     workload.Workload{Name: "client", Namespace: productNamespace, IPs: []string{productAddress}},
		Interception: model.InterceptNone,
		XDS:          agent.XDS{Address: xds, Plaintext: true},
	})
	if err != nil {
		return nil, err
	}
	b := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("the agent's bootstrap: %w", err)
	}
	b.StaticResources.Listeners = nil
	b.Admin = &bootstrapv3.Admin{Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: admin}}}}
	return b, nil
}

// bootstrap is the bootstrap of a sidecar that gets its listeners from the lab's server. It has the only cluster.
func bootstrap(admin string, xds, upstream uint32) ([]byte, error) {
	b, err := sidecar(admin, fmt.Sprintf("127.0.0.1:%d", xds))
	if err != nil {
		return nil, err
	}
	b.DynamicResources.CdsConfig = nil
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, cluster(upstreamOf, upstream))
	return protojson.Marshal(b)
}
