package explain

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Disconnected returns the proxies that disconnected from this control plane, did not connect to it again, and may still run: the
// configuration has their Pod or an endpoint at their address. They are in the order in which they disconnected.
func (x *Explainer) Disconnected() []distribution.Disconnected {
	all := x.Proxies.Disconnected()
	if len(all) == 0 {
		return nil
	}
	r := remaining{x: x, snap: x.Snapshot()}
	return slices.DeleteFunc(all, func(p distribution.Disconnected) bool { return !r.mayLive(&p) })
}

// DisconnectedWithout returns the names of those proxies of Disconnected that lack a change, by node ID.
func (x *Explainer) DisconnectedWithout(rev model.Revision) map[string]string {
	out := map[string]string{}
	for _, w := range x.living(x.Proxies.Distribution(&distribution.Query{Revision: rev})) {
		if w.Position == distribution.StateDisconnected {
			out[w.ID] = w.Name + "." + w.Namespace
		}
	}
	return out
}

// remaining judges which disconnected proxies remain in the configuration.
type remaining struct {
	x         *Explainer
	snap      *store.Snapshot
	addresses map[string]bool // of endpoints without a Pod; nil: not collected yet
	removed   map[string]bool // addresses of removed endpoints; nil: not collected yet
}

// mayLive reports whether a disconnected proxy may still run. The Pod of its name decides: it must not be about to end, and have
// one of the proxy's addresses, since a new Pod may have the name. Without a Pod, an endpoint at one of the proxy's addresses
// decides. Configuration without any Pods may lack a workload: there, only a removed endpoint shows its end.
func (r *remaining) mayLive(p *distribution.Disconnected) bool {
	pod := model.Key{Kind: model.KindPod, Namespace: p.Namespace, Name: p.Name}
	if w, ok := r.snap.Get(pod).(*model.Workload); ok {
		known := len(w.Addresses) > 0 && len(p.IPs) > 0
		return !w.Terminating && (!known || slices.ContainsFunc(w.Addresses, func(ip string) bool { return slices.Contains(p.IPs, ip) }))
	}
	if c, ok := r.x.Changes.LastChange(pod); ok && c.Operation == changelog.Deleted {
		return false
	}
	if r.addresses == nil {
		r.addresses = endpointAddresses(r.snap)
	}
	if slices.ContainsFunc(p.IPs, func(ip string) bool { return r.addresses[ip] }) {
		return true
	}
	if r.snap.Len(model.KindPod) > 0 {
		return false
	}
	if r.removed == nil {
		r.removed = map[string]bool{}
		for _, e := range r.x.Changes.RemovedEndpoints(0) {
			r.removed[e.Address] = true
		}
	}
	return !slices.ContainsFunc(p.IPs, func(ip string) bool { return r.removed[ip] })
}

// endpointAddresses returns the addresses of all endpoints without a Pod. If the configuration has no Pods, those of Pods count,
// too.
func endpointAddresses(snap *store.Snapshot) map[string]bool {
	out := map[string]bool{}
	add := func(addresses ...string) {
		for _, a := range addresses {
			out[a] = true
		}
	}
	pods := snap.Len(model.KindPod) > 0
	for o := range snap.All(model.KindEndpointSlice) {
		for _, m := range o.(*model.EndpointSlice).Members {
			if !m.Terminating && (m.Pod == "" || !pods) {
				add(m.Addresses...)
			}
		}
	}
	for o := range snap.All(model.KindWorkloadEntry) {
		add(o.(*model.Workload).Addresses...)
	}
	for o := range snap.All(model.KindServiceEntry) {
		for i := range o.(*model.ServiceEntry).Template.Inline {
			add(o.(*model.ServiceEntry).Template.Inline[i].Address)
		}
	}
	return out
}
