package index

import (
	"cmp"

	"github.com/moonsail/moonsail/internal/model"
)

// deliverySetting is how a proxy gets clusters: by its own setting, its namespace's, or the mesh's.
func (x *Index) deliverySetting(p *model.Proxy) model.Delivery {
	return cmp.Or(p.Delivery, x.deliveries[p.Namespace], x.mesh.Delivery)
}

// delivery decides what a setting means for proxies of a namespace that a Sidecar selects; nil: none does.
func (x *Index) delivery(set model.Delivery, namespace string, sidecar *model.Sidecar) model.Delivery {
	if set != model.DeliverAuto {
		return set
	}
	k := viewKey{namespace: namespace}
	if sidecar != nil {
		k.sidecar = sidecar.Key
	}
	if x.viewOf(k).onDemand {
		return model.DeliverOnDemand
	}
	return model.DeliverFull
}

// viewKey identifies the proxies that see the same services.
type viewKey struct {
	namespace string
	sidecar   model.Key // zero: none
}

// view is how many services such proxies see, with automatic delivery.
type view struct {
	client   *Client // with the Sidecar in force; nil: services must be counted again
	services int
	onDemand bool // the last decision
}

// maxViews bounds the views. Namespaces and Sidecars come and go.
const maxViews = 4096

// viewOf returns a view, which it counts if it is new.
func (x *Index) viewOf(k viewKey) *view {
	v := x.views[k]
	if v == nil {
		if len(x.views) == maxViews {
			clear(x.views)
		}
		v = &view{}
		x.views[k] = v
		x.decide(k, v)
	}
	return v
}

// countViews counts a service for the views that see it.
func (x *Index) countViews(svc *model.Service, by int) {
	for _, v := range x.views {
		if v.client != nil && v.client.Sees(svc) {
			v.services += by
		}
	}
}

// forgetViews makes views count again; all: whatever their Sidecar.
func (x *Index) forgetViews(sidecar model.Key, all bool) {
	for k, v := range x.views {
		if all || k.sidecar == sidecar {
			v.client = nil
		}
	}
}

// decideViews decides again after a batch, and reports whether proxies change their delivery.
func (x *Index) decideViews() (changed bool) {
	for k, v := range x.views {
		changed = x.decide(k, v) || changed
	}
	return changed
}

// decide decides the delivery of a view, and reports whether it differs from the last decision. The number of services at
// which it returns to full is a quarter lower, so that it does not change there and back with single services.
func (x *Index) decide(k viewKey, v *view) (changed bool) {
	if v.client == nil {
		v.client, v.services = NewClient(GroupKey{Type: model.ProxySidecar, Namespace: k.namespace, Sidecar: k.sidecar}, x.Sidecar(k.sidecar)), 0
		for _, list := range x.services {
			for _, svc := range list {
				if v.client.Sees(svc) {
					v.services++
				}
			}
		}
	}
	from := cmp.Or(x.mesh.OnDemandFrom, model.OnDemandFrom)
	if v.onDemand {
		from -= from / 4
	}
	was := v.onDemand
	v.onDemand = v.services >= from
	return v.onDemand != was
}
