package explain

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// proxyWorld is everything that a proxy should have, for the simulator, with the origins of each resource.
type proxyWorld struct {
	simulate.World
	proxy       *model.Proxy
	outstanding int      // resources that the proxy has not accepted yet
	refuses     []string // of these, those that it refuses: "LDS virtualInbound"
	made        map[resourceName]*model.Origins
	onDemand    map[string]bool // clusters and route configurations that the proxy has not asked for yet
}

type resourceName struct {
	typ  resource.Type
	name string
}

// world returns what a proxy should have, and what it asks for when a call needs it.
func (x *Explainer) world(proxy string) (*proxyWorld, error) {
	types, err := sectionTypes(AllSections)
	if err != nil {
		return nil, err
	}
	p, list, ok := x.Proxies.Intended(proxy, types...)
	if !ok {
		return nil, NotConnected{proxy}
	}
	w := &proxyWorld{proxy: p, made: map[resourceName]*model.Origins{}, onDemand: map[string]bool{}}
	list = append(list, x.Proxies.OnDemand(proxy)...)
	for i := range list {
		if err := w.add(&list[i]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", list[i].Type, list[i].Entry.Name, err)
		}
	}
	return w, nil
}

func (w *proxyWorld) add(i *distribution.Intended) error {
	w.made[resourceName{i.Type, i.Entry.Name}] = i.Entry.MadeFrom()
	if i.Type == resource.RouteConfig || routeshard.IsOnDemand(i.Entry.Name) {
		for host := range i.State.VirtualHosts(i.Entry.Name) {
			w.made[resourceName{resource.VirtualHost, host.Name}] = host.MadeFrom()
		}
	}
	switch i.Status {
	case ledger.Has:
	case ledger.NotSubscribed:
		w.onDemand[i.Entry.Name] = true
	case ledger.Refused:
		w.refuses = append(w.refuses, i.Type.String()+" "+i.Entry.Name)
	default:
		w.outstanding++
	}
	m, err := message(i.Entry.Resource())
	if err != nil {
		return err
	}
	w.Add(m)
	return nil
}

// notes explain that the proxy may do something else, as it does not have all of its resources.
func (w *proxyWorld) notes() (out []string) {
	if len(w.refuses) > 0 {
		out = append(out, fmt.Sprintf("%s refuses %s and keeps an earlier version, so it may do something else: see 'moonsail proxies %s'", w.proxy, some(w.refuses), model.CommandWord(w.proxy.String(), "PROXY")))
	}
	if w.outstanding > 0 {
		out = append(out, fmt.Sprintf("%s has not accepted %d of its resources yet, so it may do something else: see 'moonsail proxies %s'", w.proxy, w.outstanding, model.CommandWord(w.proxy.String(), "PROXY")))
	}
	return out
}

// awaited returns the route configurations and clusters of a call that the proxy asks for first.
func (w *proxyWorld) awaited(r *simulate.Result) []string {
	var out []string
	if w.onDemand[r.RouteConfig] {
		out = append(out, "routes "+r.RouteConfig)
	}
	for i := range r.Upstreams {
		if name := r.Upstreams[i].Cluster; w.onDemand[name] {
			out = append(out, "cluster "+name)
		}
	}
	return out
}

// madeFrom returns the origins of a resource that are of some kinds.
func (w *proxyWorld) madeFrom(typ resource.Type, name string, kinds ...model.Kind) []model.Key {
	return ofKinds(w.made[resourceName{typ, name}], kinds)
}

// routedBy returns the origins of the routes that a request found; nil: it found none.
func (w *proxyWorld) routedBy(r *simulate.Result) *model.Origins {
	if host := w.made[resourceName{resource.VirtualHost, r.VirtualHost}]; host != nil {
		return host
	}
	return w.made[resourceName{resource.RouteConfig, r.RouteConfig}]
}
