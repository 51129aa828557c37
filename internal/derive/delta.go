package derive

import "github.com/moonsail/moonsail/internal/view"

// Delta is what differs in a scope since it was derived last: views by resource name, nil
// for what is gone.
type Delta struct {
	Clusters     map[string]*view.Cluster
	Endpoints    map[string]*view.Endpoints
	Secrets      map[string]*view.Secret
	Scopes       map[string]*view.Scope
	Listeners    map[string]*view.Listener
	RouteConfigs map[string]*view.RouteConfig
	VirtualHosts map[string]*view.VirtualHost // by ResourceName
	Names        map[string]*view.Names       // by host
	Extensions   map[string]*view.Wasm        // plugins whose modules agents fetch
	Bootstraps   map[string]*view.Bootstrap
	// Unfetched are the plugins whose modules nobody fetches for the scope's proxies, until others
	// are given; nil: as before.
	Unfetched []string
	// Patches are what EnvoyFilters change of these and of all later views of the scope, until
	// others are given; nil: as before.
	Patches *view.Patches
}

func newDelta() *Delta {
	return &Delta{
		Clusters: map[string]*view.Cluster{}, Endpoints: map[string]*view.Endpoints{}, Secrets: map[string]*view.Secret{},
		Scopes: map[string]*view.Scope{}, Listeners: map[string]*view.Listener{}, RouteConfigs: map[string]*view.RouteConfig{},
		VirtualHosts: map[string]*view.VirtualHost{}, Names: map[string]*view.Names{}, Extensions: map[string]*view.Wasm{}, Bootstraps: map[string]*view.Bootstrap{},
	}
}

// Len counts what differs.
func (d *Delta) Len() int {
	n := len(d.Clusters) + len(d.Endpoints) + len(d.Secrets) + len(d.Scopes) + len(d.Listeners) + len(d.RouteConfigs) + len(d.VirtualHosts) + len(d.Names) + len(d.Extensions) + len(d.Bootstraps)
	if d.Patches != nil {
		n++
	}
	if d.Unfetched != nil {
		n++
	}
	return n
}
