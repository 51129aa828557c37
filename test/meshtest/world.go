package meshtest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/pipeline/translate/cluster"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
)

// World returns everything that a proxy gets, computed from scratch by the real stages: store, derive, translate.
// Routes are those of VHDS.
func (f *File) World(p *Proxy) (*simulate.World, error) { return f.world(p, whole) }

// form is how configuration reaches a proxy.
type form string

const (
	whole    form = ""          // route configurations are not split
	scoped   form = "scoped"    // all are split into route shards
	onDemand form = "on demand" // into those that the proxy asks for, and most clusters are on demand
)

// world is World in another form.
func (f *File) world(p *Proxy, as form) (*simulate.World, error) {
	d := f.derive()
	proxy := p.Model(f.Mesh.Domain)
	proxy.ScopedRoutes = as != whole
	outbound, inbound := d.Index().Keys(proxy)
	if as == onDemand && proxy.Type == model.ProxySidecar {
		outbound.Asking = index.AsksForClusters
	}
	w := &simulate.World{}
	for _, key := range []derive.GroupKey{outbound, inbound} {
		delta := d.Open(key)
		if err := translateInto(w, delta); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if err := askedOnlyByRoutes(w, delta); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return w, nil
}

// askedOnlyByRoutes checks that only routes, and TCP proxies that ask, refer to clusters on demand: Envoy asks for no others.
func askedOnlyByRoutes(w *simulate.World, d *derive.Delta) error {
	var listeners, mirrors []byte
	for _, l := range w.Listeners {
		b, err := proto.Marshal(withoutAsking(l))
		if err != nil {
			return err
		}
		listeners = append(listeners, b...)
	}
	for _, h := range w.VirtualHosts {
		for _, r := range h.GetRoutes() {
			for _, m := range r.GetRoute().GetRequestMirrorPolicies() {
				mirrors = append(mirrors, m.GetCluster()+"\n"...)
			}
		}
	}
	for name, c := range d.Clusters {
		if c != nil && c.OnDemand && (bytes.Contains(listeners, []byte(name)) || bytes.Contains(mirrors, []byte(name+"\n"))) {
			return fmt.Errorf("cluster %s: it is on demand, but not only routes refer to it", name)
		}
	}
	return nil
}

// withoutAsking returns a listener without TCP proxies that ask for their cluster.
func withoutAsking(l *listenerv3.Listener) *listenerv3.Listener {
	out := proto.CloneOf(l)
	for _, c := range append(out.GetFilterChains(), out.GetDefaultFilterChain()) {
		if c == nil {
			continue
		}
		c.Filters = slices.DeleteFunc(c.Filters, func(f *listenerv3.Filter) bool {
			p := &tcpproxyv3.TcpProxy{}
			return f.GetTypedConfig().UnmarshalTo(p) == nil && p.GetOnDemand() != nil && p.GetCluster() != ""
		})
	}
	return out
}

// derive returns a deriver that has the objects.
func (f *File) derive() *derive.Deriver {
	events := make([]store.Event, len(f.Objects))
	for i, o := range f.Objects {
		events[i] = store.Event{Key: o.Metadata().Key, Object: o}
	}
	_, changes := store.New().Apply(events)
	d := derive.New(f.Mesh, 1)
	d.SetSharding(derive.Sharding{From: 1, Bits: 4})
	d.Apply(changes)
	return d
}

func translateInto(w *simulate.World, d *derive.Delta) error {
	set, problems := envoyfilter.New(d.Patches)
	for _, p := range problems {
		return p
	}
	p := patched{set}
	for _, err := range []error{
		each(d.Clusters, &w.Clusters, p.cluster),
		each(d.Listeners, &w.Listeners, p.listener),
		each(d.VirtualHosts, &w.VirtualHosts, p.virtualHost),
	} {
		if err != nil {
			return err
		}
	}
	for _, name := range present(d.Endpoints) {
		w.Endpoints = append(w.Endpoints, cluster.Endpoints(d.Endpoints[name]))
	}
	for _, name := range present(d.RouteConfigs) {
		r, _ := set.RouteConfig(d.RouteConfigs[name].Of, route.Config(*d.RouteConfigs[name], true))
		w.Routes = append(w.Routes, r)
	}
	return nil
}

func each[V any, M proto.Message](views map[string]*V, into *[]M, translate func(*V) (m M, there bool, err error)) error {
	for _, name := range present(views) {
		m, there, err := translate(views[name])
		if err != nil {
			return err
		}
		if there {
			*into = append(*into, m)
		}
	}
	return nil
}

// present returns the names of existing values, sorted; nil stands for a removed one.
func present[V any](views map[string]*V) []string {
	names := slices.Sorted(maps.Keys(views))
	return slices.DeleteFunc(names, func(n string) bool { return views[n] == nil })
}
