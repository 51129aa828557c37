package translate

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// What EnvoyFilters add is there in Envoy's words already, and has been checked.

func addedCluster(v *ir.Cluster) (*clusterv3.Cluster, error) {
	return added[*clusterv3.Cluster](v.Added)
}

func addedListener(v *ir.Listener) (*listenerv3.Listener, error) {
	return added[*listenerv3.Listener](v.Added)
}

// addedVirtualHost has the name of its resource, and the domains that nobody else has.
func addedVirtualHost(v *ir.VirtualHost) (*routev3.VirtualHost, error) {
	out, err := added[*routev3.VirtualHost](v.Added)
	if err != nil {
		return nil, err
	}
	out.Name, out.Domains = v.ResourceName(), v.Domains
	if v.HidesPeer {
		out.RequestHeadersToRemove = append(out.RequestHeadersToRemove, peerHeader)
	}
	return out, nil
}

func added[M proto.Message](p *ir.Patch) (out M, err error) {
	m, err := envoyext.Unpack(string(p.Target), p.Value)
	if err != nil {
		return out, fmt.Errorf("%s: spec.configPatches[%d]: %w", p.Origin, p.Index, err)
	}
	out, ok := m.(M)
	if !ok {
		return out, fmt.Errorf("%s: spec.configPatches[%d]: a %T is not what is added", p.Origin, p.Index, m)
	}
	return out, nil
}
