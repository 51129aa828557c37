package preview

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/kube"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/version"
)

// Populate adds to both sides the proxies of their workloads and routers. Templates become Pods: each gets an address, the
// label of a Pod with a sidecar, and endpoints in the Services that select it. So the calls of a mesh can be tried that
// exists only as files. The same workload gets the same address on both sides. A template that has made Pods changes those
// instead.
//
// files is set if the objects come from files: then Pods are taken for injected, unless their label or annotation
// sidecar.istio.io/inject is "false". In a cluster the label of injected Pods decides.
func Populate(before, after *Side, files bool) {
	p := &population{files: files, given: map[string]netip.Addr{}, next: netip.MustParseAddr("240.0.0.1")}
	p.populate(before)
	p.populate(after)
}

// population assigns addresses, which no real workload has: those of the reserved range 240.0.0.0/4.
type population struct {
	files bool
	given map[string]netip.Addr
	next  netip.Addr
}

func (p *population) address(of string) netip.Addr {
	a, ok := p.given[of]
	if !ok {
		a = p.next
		p.given[of], p.next = a, a.Next()
	}
	return a
}

func (p *population) populate(s *Side) {
	s.given, s.rolled = s.Objects, map[model.Key]bool{}
	s.Objects = slices.Clone(s.Objects)
	p.clusterIPs(s)
	pods := p.templates(s)
	s.made = slices.Concat(s.made, pods, p.slices(s, pods))
	p.proxies(s)
}

// clusterIPs gives Services an address, as a cluster would.
func (p *population) clusterIPs(s *Side) {
	for i, o := range s.Objects {
		svc, ok := o.(*model.Service)
		if !ok || len(svc.Addresses) > 0 || svc.Headless || svc.ExternalName != "" {
			continue
		}
		c := *svc
		c.Addresses = []netip.Prefix{netip.PrefixFrom(p.address(svc.String()), 32)}
		s.Objects[i] = &c
	}
}

// templates returns a Pod for each template that has made none.
func (p *population) templates(s *Side) []model.Object {
	var out []model.Object
	for _, t := range s.Templates {
		if s.rollOut(t) {
			continue
		}
		w := *t
		w.Key = model.Key{Kind: model.KindPod, Namespace: t.Namespace, Name: t.Name}
		w.Labels = maps.Clone(t.Labels)
		if w.Labels == nil {
			w.Labels = map[string]string{}
		}
		delete(w.Labels, model.LabelTLSMode)
		if !kube.DeclinesSidecar(t.Labels, t.Annotations) && !t.HostNetwork {
			w.Labels[model.LabelTLSMode] = model.TLSModeLabelIstio
		}
		w.Addresses, w.Ready = []string{p.address("Pod/" + t.Namespace + "/" + t.Name).String()}, true
		out = append(out, &w)
	}
	return out
}

// slices returns the endpoints of Pods that are made from templates.
func (p *population) slices(s *Side, pods []model.Object) []model.Object {
	var out []model.Object
	for _, o := range s.Objects {
		svc, ok := o.(*model.Service)
		if !ok || len(svc.Selector) == 0 {
			continue
		}
		for _, pod := range pods {
			w, ok := pod.(*model.Workload)
			if !ok || w.Namespace != svc.Namespace || !model.SelectorMatches(svc.Selector, w.Labels) {
				continue
			}
			out = append(out, sliceOf(svc, w))
		}
	}
	return out
}

// sliceOf returns the endpoints that a Pod adds to a Service.
func sliceOf(svc *model.Service, w *model.Workload) *model.EndpointSlice {
	slice := &model.EndpointSlice{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: svc.Namespace, Name: svc.Name + "-" + w.Name}},
		Service: svc.Name,
		Members: []model.SliceEndpoint{{Addresses: w.Addresses, Ready: true, Serving: true, Pod: w.Name}},
	}
	for i := range svc.Ports {
		sp := &svc.Ports[i]
		slice.Ports = append(slice.Ports, model.SlicePort{Name: sp.Name, Number: cmp.Or(sp.TargetPort, w.NamedPorts[sp.TargetName], sp.Number)})
	}
	return slice
}

// proxies adds the sidecars of Pods, and the routers that Gateways select.
func (p *population) proxies(s *Side) {
	gateways := gatewaysOf(s.Objects)
	used := map[*model.Gateway]bool{}
	for _, o := range slices.Concat(s.Objects, s.made) {
		w, ok := o.(*model.Workload)
		switch {
		case !ok || len(w.Addresses) == 0 || w.Terminating:
			continue
		case w.HostNetwork:
			s.plain = append(s.plain, w)
			continue
		}
		typ := model.ProxySidecar
		for _, g := range gateways {
			if model.SelectorMatches(g.Selector, w.Labels) && (!g.OwnNamespace || g.Namespace == w.Namespace) {
				typ, used[g] = model.ProxyRouter, true
			}
		}
		switch {
		case typ == model.ProxyRouter, w.SpeaksMTLS(), p.files && w.Kind == model.KindPod && !kube.DeclinesSidecar(w.Labels, w.Annotations):
			s.Proxies = append(s.Proxies, proxyOf(typ, w))
		case w.Kind == model.KindPod:
			s.plain = append(s.plain, w)
		}
	}
	for _, g := range gateways {
		if !used[g] {
			s.addRouter(p, g)
		}
	}
}

// addRouter adds a router for a Gateway that selects none of the workloads: another team may run it.
func (s *Side) addRouter(p *population, g *model.Gateway) {
	ns := g.Namespace
	if !g.OwnNamespace && ns == "" {
		ns = "istio-system"
	}
	w := &model.Workload{
		Meta:           model.Meta{Key: model.Key{Kind: model.KindPod, Namespace: ns, Name: routerName(g)}, Labels: g.Selector},
		ServiceAccount: routerName(g),
	}
	w.Addresses = []string{p.address("router/" + w.Namespace + "/" + w.Name).String()}
	router := proxyOf(model.ProxyRouter, w)
	if !slices.ContainsFunc(s.Proxies, func(o *model.Proxy) bool { return o.String() == router.String() }) {
		s.Proxies = append(s.Proxies, router)
	}
}

func routerName(g *model.Gateway) string {
	if name := g.Selector[model.LabelGatewayName]; name != "" {
		return name
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(g.Selector)) {
		parts = append(parts, g.Selector[k])
	}
	return strings.Join(parts, "-")
}

func gatewaysOf(objects []model.Object) []*model.Gateway {
	var out []*model.Gateway
	for _, o := range objects {
		if g, ok := o.(*model.Gateway); ok && len(g.Selector) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// proxyOf returns a workload's proxy as it would connect.
func proxyOf(typ model.ProxyType, w *model.Workload) *model.Proxy {
	dns := w.Namespace + ".svc.cluster.local"
	ports := w.NamedPorts
	if w.Kind == model.KindWorkloadEntry {
		ports = nil // agents report the ports of containers: a WorkloadEntry has none
	}
	return &model.Proxy{
		ID:   fmt.Sprintf("%s~%s~%s.%s~%s", typ, w.Address(), w.Name, w.Namespace, dns),
		Type: typ, Name: w.Name, Namespace: w.Namespace, IPs: w.Addresses, Labels: w.Labels,
		ServiceAccount: cmp.Or(w.ServiceAccount, "default"), Cluster: w.Labels["app"] + "." + w.Namespace, ClusterID: "Kubernetes",
		Network: w.Network, Locality: w.Locality, DNSDomain: dns, Interception: cmp.Or(w.Interception, model.InterceptRedirect), NamedPorts: ports,
		IstioVersion: version.IstioAPI, Identity: true, Files: true, Modules: true,
	}
}
