package explain

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// world is everything that a proxy is to have, for the simulator, and how many of it the
// proxy has not accepted yet.
func (x *Explainer) world(proxy string) (*model.Proxy, *simulate.World, int, error) {
	types, err := sectionTypes(AllSections)
	if err != nil {
		return nil, nil, 0, err
	}
	p, list, ok := x.Proxies.Intended(proxy, types...)
	if !ok {
		return nil, nil, 0, NotConnected{proxy}
	}
	w, outstanding := &simulate.World{}, 0
	for i := range list {
		m, err := message(list[i].Entry.Resource())
		if err != nil {
			return nil, nil, 0, fmt.Errorf("%s %s: %w", list[i].Type, list[i].Entry.Name, err)
		}
		if list[i].Status != ledger.Has {
			outstanding++
		}
		switch m := m.(type) {
		case *listenerv3.Listener:
			w.Listeners = append(w.Listeners, m)
		case *routev3.RouteConfiguration:
			w.Routes = append(w.Routes, m)
		case *routev3.VirtualHost:
			w.VirtualHosts = append(w.VirtualHosts, m)
		case *clusterv3.Cluster:
			w.Clusters = append(w.Clusters, m)
		case *endpointv3.ClusterLoadAssignment:
			w.Endpoints = append(w.Endpoints, m)
		}
	}
	return p, w, outstanding, nil
}
