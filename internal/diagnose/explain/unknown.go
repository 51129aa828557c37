package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// destination is what a call leads to, by name.
type destination struct {
	name  string // as the user wrote it
	host  model.Host
	port  string
	known bool // a service of the mesh has the host
}

// isAddress reports whether the call names an IP address.
func (d *destination) isAddress() bool {
	_, err := netip.ParseAddr(d.name)
	return err == nil
}

// isUnknown reports whether a proxy treats a call as one to an unknown destination.
func isUnknown(r *simulate.Result) bool {
	_, host := resourcename.CutVirtualHost(r.VirtualHost)
	return host == outbound.AllowAny || host == outbound.BlockAll || slices.ContainsFunc(r.Upstreams, func(u simulate.Upstream) bool {
		return u.Cluster == ir.PassthroughCluster || u.Cluster == ir.BlackHoleCluster
	})
}

// unknown replaces the verdict of a call that the caller's proxy treats as one to an unknown destination, and of a call to a
// name without an address.
func (x *Explainer) unknown(w *Why, snap *store.Snapshot, world *proxyWorld, d *destination, direct bool) {
	if !w.Gateway && !d.known && isOwn(world.proxy, d) {
		w.Verdict = &CallVerdict{Ends: []End{{Percent: 100, Outcome: Local, Cause: "calls of " + w.From + " to itself do not go through its sidecar"}}}
		w.Verdict.Text = w.Verdict.Ends[0].text()
		return
	}
	r, v := w.Outbound.Result, w.Verdict
	treated := isUnknown(r)
	unresolved := !d.known && !direct && !d.isAddress() && inCluster(snap, d.name, world.proxy)
	refused := r.Closed != "" || r.Status != 0
	switch {
	case w.Gateway, !treated && !refused:
		return
	case !treated && !unresolved:
		if w.Unknown {
			v.Reasons = append(v.Reasons, x.whyUnknown(snap, world, d))
		}
		return
	}
	why := x.whyUnknown(snap, world, d)
	does, policy := x.unknownPolicy(snap, world, direct)
	if unresolved {
		w.Verdict = &CallVerdict{Ends: []End{{Percent: 100, Outcome: Unresolved, Cause: "DNS has no address: " + why}}}
		w.Verdict.Text = w.Verdict.Ends[0].text()
		w.Verdict.Reasons = []string{"to an address of no service, as from /etc/hosts, " + does + " (" + policy + ")"}
		return
	}
	v.Reasons = append(v.Reasons, policy)
	w.Notes = slices.DeleteFunc(w.Notes, func(n string) bool { return n == why })
	for i := range v.Ends {
		e := &v.Ends[i]
		e.Cause = why
		if e.Outcome == Passed && !d.known && !d.isAddress() {
			e.At = []string{d.name + ":" + d.port}
		}
	}
	if len(v.Ends) == 1 {
		v.Text = v.Ends[0].text()
	}
}

// whyUnknown explains why a proxy knows no destination for a call.
func (x *Explainer) whyUnknown(snap *store.Snapshot, w *proxyWorld, d *destination) string {
	switch {
	case d.known && len(wrongPort(snap, d.host, d.port)) > 0:
		return wrongPort(snap, d.host, d.port)[0]
	case d.known && !w.sees(d):
		text := fmt.Sprintf("%s does not see %s: ", w.proxy, d.host)
		if key, ok := x.Proxies.SidecarOf(w.proxy.ID); ok {
			return text + "the egress hosts of " + objectText(key) + ", or the exportTo of the service, leave it out"
		}
		return text + "the exportTo of the service leaves it out"
	case d.known:
		return fmt.Sprintf("no listener, filter chain or route of %s for %s:%s matches the call", w.proxy, d.host, d.port)
	case d.isAddress():
		return "no Service or ServiceEntry has the address " + d.name + ", or not with port " + d.port
	}
	return fmt.Sprintf("no Service or ServiceEntry has the host %s%s", d.name, nearService(snap, d.name, w.proxy.Namespace))
}

// sees reports whether the proxy has the cluster of a service.
func (w *proxyWorld) sees(d *destination) bool {
	port, _ := strconv.ParseUint(d.port, 10, 32)
	return w.made[resourceName{resource.Cluster, ir.OutboundCluster(uint32(port), "", d.host)}] != nil
}

// unknownPolicy returns what a proxy does with calls to unknown destinations, and the setting that decides it.
func (x *Explainer) unknownPolicy(snap *store.Snapshot, world *proxyWorld, direct bool) (does, policy string) {
	mode, from := x.mesh(snap).Outbound, "of the mesh"
	var egress *model.Destination
	if key, ok := x.Proxies.SidecarOf(world.proxy.ID); ok {
		if s, ok := snap.Get(key).(*model.Sidecar); ok {
			egress = s.EgressProxy
			if s.Outbound != "" {
				mode, from = s.Outbound, "of "+objectText(key)
			}
		}
	}
	policy = fmt.Sprintf("outboundTrafficPolicy %s %s", mode, from)
	switch {
	case mode == model.OutboundRegistryOnly:
		return "the proxy answers 502, and closes connections that are not HTTP", policy + ": 502 for HTTP, " + ir.BlackHoleCluster + " for other connections"
	case egress != nil:
		return "the proxy sends it to " + string(egress.Host), policy + ": egressProxy " + string(egress.Host)
	case direct:
		return "the proxy answers 502", policy + ", but nothing intercepts the call, so the proxy has no address to pass it on to"
	}
	return "the proxy passes it on unchanged", policy + ": " + ir.PassthroughCluster
}

// isOwn reports whether a workload itself is the destination: by a loopback address or localhost, or by its Pod's name, which its
// /etc/hosts has.
func isOwn(p *model.Proxy, d *destination) bool {
	name := strings.TrimSuffix(strings.ToLower(d.name), ".")
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback() || name == "localhost" || strings.HasSuffix(name, ".localhost") || name == p.Name
}

// inCluster reports whether only the cluster's DNS has a name: one without a dot, of the cluster's domain, or that ends with a
// namespace.
func inCluster(snap *store.Snapshot, name string, p *model.Proxy) bool {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	rest, ok := strings.CutSuffix(name, "."+p.ClusterDomain())
	if ok || strings.HasSuffix(name, ".svc") {
		return ok && strings.HasSuffix(rest, ".svc") || !ok
	}
	_, namespace, dotted := strings.Cut(name, ".")
	if !dotted {
		return true
	}
	if snap.Get(model.Key{Kind: model.KindNamespace, Name: namespace}) != nil {
		return true
	}
	for o := range snap.All(model.KindService) {
		if o.Metadata().Namespace == namespace {
			return true
		}
	}
	return false
}
