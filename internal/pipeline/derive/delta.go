package derive

import (
	"github.com/moonsail/moonsail/internal/pipeline/derive/inbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// GroupKey identifies a proxy group. Proxies with equal keys receive the same configuration.
type GroupKey = index.GroupKey

// ShardedRoutes is a set of route configurations that are served in shards.
type ShardedRoutes = index.ShardedRoutes

// Delta is what differs in a group since its last derivation: values by resource name, nil for what is gone.
type Delta struct {
	Clusters     map[string]*ir.Cluster
	Endpoints    map[string]*ir.Endpoints
	Secrets      map[string]*ir.Secret
	Scopes       map[string]*ir.Scope
	Listeners    map[string]*ir.Listener
	RouteConfigs map[string]*ir.RouteConfig
	VirtualHosts map[string]*ir.VirtualHost // by ResourceName
	Names        map[string]*ir.Names       // by host
	Extensions   map[string]*ir.Wasm        // plugins whose modules agents fetch
	Bootstraps   map[string]*ir.Bootstrap
	// Unfetched are the plugins whose modules the agents of the group's proxies cannot fetch. They count until a later delta
	// replaces them; nil: as before.
	Unfetched []string
	// Patches are what EnvoyFilters change of these and of all later values of the group. They count until a later delta
	// replaces them; nil: as before.
	Patches *ir.Patches
}

func newDelta() *Delta {
	return &Delta{
		Clusters: map[string]*ir.Cluster{}, Endpoints: map[string]*ir.Endpoints{}, Secrets: map[string]*ir.Secret{},
		Scopes: map[string]*ir.Scope{}, Listeners: map[string]*ir.Listener{}, RouteConfigs: map[string]*ir.RouteConfig{},
		VirtualHosts: map[string]*ir.VirtualHost{}, Names: map[string]*ir.Names{}, Extensions: map[string]*ir.Wasm{}, Bootstraps: map[string]*ir.Bootstrap{},
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

// addListener adds a listener; nil: there is none.
func (d *Delta) addListener(l *ir.Listener) {
	if l != nil {
		d.Listeners[l.Name] = l
	}
}

// replaceInbound replaces everything inbound; was is nil at first.
func (d *Delta) replaceInbound(was, now *inbound.Output) {
	if was != nil {
		for n := range was.Clusters {
			d.Clusters[n] = nil
		}
		for n := range was.Listeners {
			d.Listeners[n] = nil
		}
	}
	for n, c := range now.Clusters {
		d.Clusters[n] = c
	}
	for n, l := range now.Listeners {
		d.Listeners[n] = l
	}
}
