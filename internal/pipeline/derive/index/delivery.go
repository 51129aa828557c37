package index

import (
	"cmp"

	"github.com/moonsail/moonsail/internal/model"
)

// deliverySetting is how a proxy gets clusters: by its own setting, its namespace's, or the mesh's.
func (x *Index) deliverySetting(p *model.Proxy) model.Delivery {
	return cmp.Or(p.Delivery, x.deliveries[p.Namespace], x.mesh.Delivery)
}

// asking decides what a setting means for proxies that can ask.
func (x *Index) asking(set model.Delivery, k seenBy) Asking {
	switch {
	case set == model.DeliverOnDemand, set == model.DeliverAuto && x.countFor(k).onDemand:
		return AsksForClusters
	case set == model.DeliverAuto:
		return MayAskLater
	}
	return AsksNothing
}

// seenBy identifies the proxies that see the same services.
type seenBy struct {
	namespace string
	sidecar   model.Key // that selects them; zero: none
}

// serviceCount is how many services such proxies see, with automatic delivery.
type serviceCount struct {
	client   *Client // with the Sidecar in force; nil: services must be counted again
	services int
	onDemand bool // the last decision
	returns  int  // how often the decision returned to full
}

// automatic has the decisions of automatic delivery. A decision depends on the one before, so it stays while a group is open
// whose proxies it may be for. Invariant after each batch: each count has such a group.
type automatic struct {
	counts map[seenBy]*serviceCount
	groups map[seenBy]int // number of open groups that ask, now or later; no value is 0
}

// Opened takes note of a group that is open from now on.
func (x *Index) Opened(k *GroupKey) {
	if k.Asking != AsksNothing {
		x.automatic.groups[seenBy{k.Namespace, k.Sidecar}]++
	}
}

// Closed takes back Opened.
func (x *Index) Closed(k *GroupKey) {
	if k.Asking == AsksNothing {
		return
	}
	by, a := seenBy{k.Namespace, k.Sidecar}, &x.automatic
	if a.groups[by]--; a.groups[by] == 0 {
		delete(a.groups, by)
		delete(a.counts, by)
	}
}

// countFor returns the count of proxies. A new one stays at the next batch if their group is open by then.
func (x *Index) countFor(k seenBy) *serviceCount {
	c := x.automatic.counts[k]
	if c == nil {
		c = &serviceCount{}
		x.automatic.counts[k] = c
		x.decideDelivery(k, c)
	}
	return c
}

// count adds a service to the counts of proxies that see it.
func (a *automatic) count(svc *model.Service, by int) {
	for _, c := range a.counts {
		if c.client != nil && c.client.Sees(svc) {
			c.services += by
		}
	}
}

// recount makes counts begin again.
func (a *automatic) recount(which func(seenBy) bool) {
	for k, c := range a.counts {
		if which(k) {
			c.client = nil
		}
	}
}

// decideDeliveries decides again after a batch, and reports whether proxies change their delivery. A Sidecar that is gone
// selects no proxies, so its decisions stay as they are.
func (x *Index) decideDeliveries() (changed bool) {
	a := &x.automatic
	for k, c := range a.counts {
		switch {
		case a.groups[k] == 0:
			delete(a.counts, k)
		case k.sidecar == model.Key{} || x.Sidecar(k.sidecar) != nil:
			changed = x.decideDelivery(k, c) || changed
		}
	}
	return changed
}

// decideDelivery decides by a count, and reports whether the decision differs from the last one. The number of services at
// which it returns to full is a quarter lower, so that it does not change there and back with single services. Each return
// lowers it by a further quarter, so that those who may export services to all cannot change it again and again.
func (x *Index) decideDelivery(k seenBy, c *serviceCount) (changed bool) {
	if c.client == nil {
		c.client, c.services = NewClient(GroupKey{Type: model.ProxySidecar, Namespace: k.namespace, Sidecar: k.sidecar}, x.Sidecar(k.sidecar)), 0
		for _, list := range x.services {
			for _, svc := range list {
				if c.client.Sees(svc) {
					c.services++
				}
			}
		}
	}
	from := cmp.Or(x.mesh.OnDemandFrom, model.OnDemandFrom)
	was := c.onDemand
	if was {
		for range 1 + c.returns {
			from -= (from + 3) / 4
		}
	}
	if c.onDemand = c.services >= from; was && !c.onDemand {
		c.returns++
	}
	return c.onDemand != was
}
