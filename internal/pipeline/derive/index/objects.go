package index

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// How objects of each kind go into the index. Usage counts are raised for the new version before they are lowered for the
// old one, so that a label that both use does not count as news.

// replaceMesh makes all groups derive everything again.
func (x *Index) replaceMesh(now *model.Mesh, touched *Touched) {
	old := x.mesh
	x.mesh, touched.Mesh = now, true
	x.automatic.recount(func(seenBy) bool { return true })
	touched.labels = x.labels.countPriority(now.Locality, 1) || touched.labels
	touched.labels = x.labels.countPriority(old.Locality, -1) || touched.labels
	touched.labels = x.countTopology(1, func(u labelUse) { u.countPriority(now.Locality, 1) }) || touched.labels
	touched.labels = x.countTopology(-1, func(u labelUse) { u.countPriority(old.Locality, 1) }) || touched.labels
	touched.labels = x.localityUsage.countMesh(now, 1) || touched.labels
	touched.labels = x.localityUsage.countMesh(old, -1) || touched.labels
	if old.Ingress != now.Ingress {
		x.serveIngresses(touched, func(*model.Ingress) bool { return true })
	}
}

// servicesOf lists the services of a Service or ServiceEntry.
func servicesOf(o model.Object) []*model.Service {
	switch o := o.(type) {
	case *model.Service:
		return []*model.Service{o}
	case *model.ServiceEntry:
		return o.Services()
	}
	return nil
}

func (x *Index) replaceServices(old, now []*model.Service, touched *Touched) {
	for _, s := range old {
		unlist(x.services, s.Hostname, s)
		x.automatic.count(s, -1)
		x.endpoints.removeService(s, touched)
	}
	for _, s := range now {
		enlist(x.services, s.Hostname, s)
		x.automatic.count(s, 1)
		x.endpoints.addService(s, touched)
	}
	for _, s := range now {
		touched.labels = x.localityUsage.countService(s, 1) || touched.labels
		touched.labels = x.countHeadless(s, 1) || touched.labels
	}
	for _, s := range old {
		touched.labels = x.localityUsage.countService(s, -1) || touched.labels
		touched.labels = x.countHeadless(s, -1) || touched.labels
	}
	for _, s := range slices.Concat(old, now) {
		touched.Facts.add(serviceFact(s.Hostname))
		touched.Services = append(touched.Services, s)
		x.mergeServices(hostOf(s), touched)
	}
}

// replaceNamespace touches the services of a namespace whose distribution changed, and its proxies if their delivery did.
func (x *Index) replaceNamespace(old, now *model.Namespace, touched *Touched) {
	var was, is model.Distribution
	var delivered, delivery model.Delivery
	var ns string
	if old != nil {
		ns, was, delivered = old.Name, old.Distribution, old.Delivery
	}
	if now != nil {
		ns, is, delivery = now.Name, now.Distribution, now.Delivery
	}
	if delivered != delivery {
		touched.labels = true // its proxies belong to other groups
		x.deliveries[ns] = delivery
		if delivery == "" {
			delete(x.deliveries, ns)
		}
	}
	if was == is {
		return
	}
	touched.labels = x.localityUsage.count(is, 1) || touched.labels
	touched.labels = x.localityUsage.count(was, -1) || touched.labels
	x.localityUsage.namespaces[ns] = is
	if is == model.DistributionUnset {
		delete(x.localityUsage.namespaces, ns)
	}
	for host, list := range x.services {
		for _, svc := range list {
			if svc.Namespace == ns && svc.Distribution == model.DistributionUnset {
				touched.Facts.add(serviceFact(host))
				touched.Services = append(touched.Services, svc)
			}
		}
	}
}

func (x *Index) replaceVirtualService(old, now *model.VirtualService, touched *Touched) {
	x.bound.replace(old, now, touched)
	if old != nil {
		x.eachRouteHost(old, func(h model.Host) { unlist(x.routes, h, old) }, touched)
		eachWider(old, func(h model.Host) { unlist(x.routesUnder, h, old) }, touched)
		delete(x.delegate, old.Key)
	}
	if now != nil {
		x.eachRouteHost(now, func(h model.Host) { enlist(x.routes, h, now) }, touched)
		eachWider(now, func(h model.Host) { enlist(x.routesUnder, h, now) }, touched)
		if len(now.Hosts) == 0 {
			x.delegate[now.Key] = now
		}
		touched.labels = x.labels.count(now, 1) || touched.labels
		touched.labels = x.countTopology(1, func(u labelUse) { u.count(now, 1) }) || touched.labels
	}
	if old != nil {
		touched.labels = x.labels.count(old, -1) || touched.labels
		touched.labels = x.countTopology(-1, func(u labelUse) { u.count(old, 1) }) || touched.labels
	}
}

func (x *Index) eachRouteHost(v *model.VirtualService, f func(model.Host), touched *Touched) {
	touched.Facts.add(delegateFact(v.Key))
	if !v.InMesh() {
		return
	}
	touched.Routes = append(touched.Routes, v)
	for _, h := range v.MeshHosts() {
		f(h)
		touched.Facts.add(virtualServiceFact(h))
	}
}

// eachWider calls f for each wildcard above the hosts of a virtual service with rules for connections.
func eachWider(v *model.VirtualService, f func(model.Host), touched *Touched) {
	if len(v.TLS)+len(v.TCP) == 0 || !v.InMesh() || v.Kind.IsKubernetesRoute() {
		return
	}
	seen := map[model.Host]bool{}
	for _, h := range v.MeshHosts() {
		for _, wide := range h.Covering()[1:] {
			if !seen[wide] {
				seen[wide] = true
				f(wide)
				touched.Facts.add(routesUnderFact(wide))
			}
		}
	}
}

// bound are the virtual services of gateways, by gateway and host.
type bound map[string]map[model.Host][]*model.VirtualService

func (b bound) replace(old, now *model.VirtualService, touched *Touched) {
	if old != nil {
		b.each(old, func(of map[model.Host][]*model.VirtualService, h model.Host) { unlist(of, h, old) }, touched)
	}
	if now != nil {
		b.each(now, func(of map[model.Host][]*model.VirtualService, h model.Host) { enlist(of, h, now) }, touched)
	}
}

// each calls f for each gateway and host of a virtual service.
func (b bound) each(v *model.VirtualService, f func(map[model.Host][]*model.VirtualService, model.Host), touched *Touched) {
	found := false
	for _, g := range v.Gateways {
		if g == model.GatewayMesh {
			continue
		}
		found = true
		if b[g] == nil {
			b[g] = map[model.Host][]*model.VirtualService{}
		}
		for _, h := range v.Hosts {
			f(b[g], h)
		}
		if len(b[g]) == 0 {
			delete(b, g)
		}
	}
	if found {
		touched.Bound = append(touched.Bound, v)
	}
}

func (x *Index) replaceRule(old, now *model.DestinationRule, touched *Touched) {
	if old != nil {
		unlist(x.rules, old.Host, old)
		touched.Facts.add(destinationRuleFact(old.Host))
	}
	if now != nil {
		enlist(x.rules, now.Host, now)
		touched.Facts.add(destinationRuleFact(now.Host))
		touched.labels = x.labels.countRule(now, 1) || touched.labels
		touched.labels = x.countTopology(1, func(u labelUse) { u.countRule(now, 1) }) || touched.labels
		touched.labels = x.localityUsage.countRule(now, 1) || touched.labels
		touched.labels = x.countCredentials(now, 1) || touched.labels
	}
	if old != nil {
		touched.labels = x.labels.countRule(old, -1) || touched.labels
		touched.labels = x.countTopology(-1, func(u labelUse) { u.countRule(old, 1) }) || touched.labels
		touched.labels = x.localityUsage.countRule(old, -1) || touched.labels
		touched.labels = x.countCredentials(old, -1) || touched.labels
	}
}

func (x *Index) replaceBackendTLS(old, now *model.BackendTLSPolicy, touched *Touched) {
	if old != nil {
		hosts, entries := targetsOf(old)
		for _, h := range hosts {
			unlist(x.backendTLS, h, old)
		}
		for _, k := range entries {
			unlist(x.entryTLS, k, old)
		}
		x.touchTargets(hosts, entries, touched)
	}
	if now != nil {
		hosts, entries := targetsOf(now)
		for _, h := range hosts {
			enlist(x.backendTLS, h, now)
		}
		for _, k := range entries {
			enlist(x.entryTLS, k, now)
		}
		x.touchTargets(hosts, entries, touched)
	}
}

// touchTargets touches the hosts of a policy's targets. A ServiceEntry that changes its hosts touches them itself.
func (x *Index) touchTargets(hosts []model.Host, entries []model.Key, touched *Touched) {
	for _, k := range entries {
		hosts = append(hosts, x.entryRoutes.hosts[k]...)
	}
	for _, h := range hosts {
		touched.Facts.add(destinationRuleFact(h))
	}
}

// targetsOf are the hosts of Services and the ServiceEntries that a policy is for, each once: several targets may be ports of
// one of them.
func targetsOf(p *model.BackendTLSPolicy) (hosts []model.Host, entries []model.Key) {
	for _, t := range p.Targets {
		k := model.Key{Kind: model.KindServiceEntry, Namespace: p.Namespace, Name: t.Entry}
		switch {
		case t.Entry == "" && !slices.Contains(hosts, t.Host):
			hosts = append(hosts, t.Host)
		case t.Entry != "" && !slices.Contains(entries, k):
			entries = append(entries, k)
		}
	}
	return hosts, entries
}

func (x *Index) replaceSidecar(old, now *model.Sidecar, touched *Touched) {
	if old != nil {
		touched.Sidecars[old.Namespace] = true
		take(x.sidecars, old.Namespace, old.Key)
	}
	if now != nil {
		touched.Sidecars[now.Namespace] = true
		insert(x.sidecars, now.Namespace, now.Key, now)
		x.automatic.recount(func(k seenBy) bool { return k.sidecar == now.Key })
		touched.labels = x.countCredentials(now, 1) || touched.labels
		touched.labels = x.countTopology(1, func(u labelUse) { u.add(now.Selector, 1) }) || touched.labels
	}
	if old != nil {
		touched.labels = x.countCredentials(old, -1) || touched.labels
		touched.labels = x.countTopology(-1, func(u labelUse) { u.add(old.Selector, 1) }) || touched.labels
	}
}

func (x *Index) replaceSecret(old, now *model.Secret, touched *Touched) {
	if old != nil {
		delete(x.secrets, old.Key)
		touched.Facts.add(secretFact(old.Key))
	}
	if now != nil {
		x.secrets[now.Key] = now
		touched.Facts.add(secretFact(now.Key))
	}
}

// keySetFact is named like the fact of a policy: no policy has that kind.
func keySetFact(source string) Fact {
	return policyFact(policyKey{kind: model.KindKeySet, pair: source})
}

func (x *Index) replaceKeySet(old, now *model.KeySet, touched *Touched) {
	if old != nil {
		touched.Facts.add(keySetFact(old.Name))
		delete(x.keySets, old.Name)
	}
	if now != nil {
		touched.Facts.add(keySetFact(now.Name))
		x.keySets[now.Name] = now
	}
}

func (x *Index) replaceEnvoyFilter(old, now *model.EnvoyFilter, touched *Touched) {
	x.replacePolicy(object(old), object(now), touched)
	if now != nil {
		touched.labels = x.proxies.count(now, 1) || touched.labels
		touched.labels = x.countNaming(now, 1) || touched.labels
	}
	if old != nil {
		touched.labels = x.proxies.count(old, -1) || touched.labels
		touched.labels = x.countNaming(old, -1) || touched.labels
	}
}

func (x *Index) replaceWasmPlugin(old, now *model.WasmPlugin, touched *Touched) {
	x.replacePolicy(object(old), object(now), touched)
	touched.labels = x.countPulls(now, 1) || touched.labels
	touched.labels = x.countPulls(old, -1) || touched.labels
}

// object keeps nil pointers out of interfaces.
func object[T any, P interface {
	*T
	model.Object
}](p P) model.Object {
	if p == nil {
		return nil
	}
	return p
}
