package derive

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

// world makes random objects over a small universe, so that they meet often.
type world struct {
	*rand.Rand
	version int
}

var (
	worldNamespaces = []string{"a", "b", "istio-system"}
	worldNames      = []string{"x", "y", "z"}
	worldVersions   = []string{"v1", "v2"}
	worldProtocols  = []model.Protocol{model.ProtocolHTTP, model.ProtocolGRPC, model.ProtocolTCP, model.ProtocolTLS, model.ProtocolAuto}
)

func pick[T any](w *world, list []T) T { return list[w.IntN(len(list))] }

func (w *world) chance(p float64) bool { return w.Float64() < p }

func (w *world) meta(kind model.Kind) model.Meta {
	w.version++
	return model.Meta{
		Key:             model.Key{Kind: kind, Namespace: pick(w, worldNamespaces), Name: pick(w, worldNames)},
		ResourceVersion: fmt.Sprint(w.version),
	}
}

func (w *world) visibility(ns string) model.Visibility {
	switch w.IntN(4) {
	case 0:
		return model.Visibility{Private: true, Namespaces: []string{ns}}
	case 1:
		return model.Visibility{Private: true, Namespaces: []string{pick(w, worldNamespaces)}}
	}
	return model.Visibility{}
}

func (w *world) host() model.Host {
	switch w.IntN(8) {
	case 0:
		return "api.example.com"
	case 1:
		return "*.example.com"
	case 2:
		return "other.example.org"
	}
	return model.ResolveHost(pick(w, worldNames), pick(w, worldNamespaces), "cluster.local")
}

func (w *world) ports() []model.ServicePort {
	var out []model.ServicePort
	for _, n := range []uint32{80, 443, 9000} {
		if w.chance(0.5) {
			out = append(out, model.ServicePort{Name: fmt.Sprintf("p%d", n), Number: n, Protocol: pick(w, worldProtocols), TargetPort: n + 8000})
		}
	}
	return out
}

func (w *world) service() model.Object {
	m := w.meta(model.KindService)
	s := &model.Service{
		Meta: m, Hostname: model.ResolveHost(m.Name, m.Namespace, "cluster.local"), Ports: w.ports(),
		Resolution: model.ResolutionStatic, Visibility: w.visibility(m.Namespace),
	}
	if w.chance(0.7) {
		s.Selector = map[string]string{"app": pick(w, worldNames)}
	}
	if w.chance(0.2) {
		s.Headless = true
	} else {
		s.Addresses = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + w.IntN(3))}), 32)}
	}
	return s
}

func (w *world) serviceEntry() model.Object {
	m := w.meta(model.KindServiceEntry)
	e := &model.ServiceEntry{Meta: m, Hosts: []model.Host{w.host()}}
	e.Template = model.Service{
		Ports: w.ports(), External: w.chance(0.5), Visibility: w.visibility(m.Namespace),
		Resolution: pick(w, []model.Resolution{model.ResolutionStatic, model.ResolutionDNS, model.ResolutionNone}),
	}
	if w.chance(0.5) {
		e.Template.Selector = map[string]string{"app": pick(w, worldNames)}
	} else {
		e.Template.Inline = []model.Endpoint{{Address: "192.0.2.1", Labels: map[string]string{"version": pick(w, worldVersions)}}}
	}
	return e
}

func (w *world) slice() model.Object {
	s := &model.EndpointSlice{Meta: w.meta(model.KindEndpointSlice), Service: pick(w, worldNames)}
	for _, n := range []uint32{80, 443, 9000} {
		s.Ports = append(s.Ports, model.SlicePort{Name: fmt.Sprintf("p%d", n), Number: n + 8000})
	}
	for i := range w.IntN(3) {
		s.Members = append(s.Members, model.SliceEndpoint{
			Addresses: []string{fmt.Sprintf("10.1.0.%d", 1+w.IntN(5)+i)}, Ready: w.chance(0.8), Serving: true,
			Terminating: w.chance(0.3), Pod: pick(w, worldNames),
		})
	}
	return s
}

func (w *world) workload(kind model.Kind) model.Object {
	return &model.Workload{
		Meta: func() model.Meta {
			m := w.meta(kind)
			m.Labels = map[string]string{"app": pick(w, worldNames), "version": pick(w, worldVersions)}
			return m
		}(),
		Addresses: []string{fmt.Sprintf("10.1.0.%d", 1+w.IntN(5))}, Ready: w.chance(0.8),
		Locality: model.Locality{Region: pick(w, []string{"r1", "r2"})},
	}
}

func (w *world) destination() model.Destination {
	d := model.Destination{Host: w.host()}
	if w.chance(0.3) {
		d.Subset = pick(w, worldVersions)
	}
	if w.chance(0.3) {
		d.Port = 80
	}
	return d
}

func (w *world) virtualService() model.Object {
	m := w.meta(model.KindVirtualService)
	v := &model.VirtualService{Meta: m, Gateways: []string{model.GatewayMesh}, Visibility: w.visibility(m.Namespace)}
	if w.chance(0.85) {
		v.Hosts = []model.Host{w.host()}
	}
	for range 1 + w.IntN(2) {
		rule := model.HTTPRoute{Backends: []model.Backend{{Destination: w.destination(), Weight: 10}, {Destination: w.destination(), Weight: 90}}}
		if w.chance(0.5) {
			match := model.HTTPMatch{URI: &model.StringMatch{Kind: model.MatchPrefix, Value: "/" + pick(w, worldNames)}}
			if w.chance(0.3) {
				match.SourceLabels = map[string]string{"app": pick(w, worldNames)}
			}
			rule.Matches = []model.HTTPMatch{match}
		}
		if len(v.Hosts) > 0 && w.chance(0.2) {
			rule.Backends = nil
			rule.Delegate = &model.Key{Kind: model.KindVirtualService, Namespace: pick(w, worldNamespaces), Name: pick(w, worldNames)}
		}
		v.HTTP = append(v.HTTP, rule)
	}
	if w.chance(0.3) {
		v.TCP = []model.TCPRoute{{Backends: []model.Backend{{Destination: w.destination()}}}}
	}
	if w.chance(0.3) && len(v.Hosts) > 0 {
		v.TLS = []model.TLSRoute{{Matches: []model.L4Match{{SNIHosts: v.Hosts}}, Backends: []model.Backend{{Destination: w.destination()}}}}
	}
	return v
}

func (w *world) destinationRule() model.Object {
	m := w.meta(model.KindDestinationRule)
	d := &model.DestinationRule{Meta: m, Host: w.host(), Visibility: w.visibility(m.Namespace)}
	for _, v := range worldVersions {
		if w.chance(0.6) {
			d.Subsets = append(d.Subsets, model.Subset{Name: v, Labels: map[string]string{"version": v}})
		}
	}
	if w.chance(0.3) {
		d.Policy.LoadBalancer = &model.LoadBalancer{Algorithm: model.LBRingHash, Hash: &model.HashPolicy{Header: "x-user"}}
	}
	if w.chance(0.2) {
		d.Policy.OutlierDetection = &model.OutlierDetection{}
	}
	if w.chance(0.2) {
		d.WorkloadSelector = map[string]string{"app": pick(w, worldNames)}
	}
	return d
}

func (w *world) sidecar() model.Object {
	s := &model.Sidecar{Meta: w.meta(model.KindSidecar)}
	if w.chance(0.5) {
		s.Selector = map[string]string{"app": pick(w, worldNames)}
	}
	if w.chance(0.3) {
		s.Outbound = model.OutboundRegistryOnly
	}
	if w.chance(0.2) {
		s.EgressProxy = &model.Destination{Host: w.host(), Port: 80}
	}
	for range w.IntN(3) {
		e := model.EgressListener{Hosts: []model.HostSelector{{Namespace: pick(w, append(worldNamespaces, "*")), Host: pick(w, []model.Host{"*", w.host()})}}}
		if w.chance(0.4) {
			e.Port = &model.SidecarPort{Number: pick(w, []uint32{80, 9000}), Protocol: model.ProtocolHTTP}
		}
		if w.chance(0.3) {
			e.Capture, e.Bind = model.CaptureNone, "127.0.0.9"
		}
		s.Egress = append(s.Egress, e)
	}
	return s
}

// event makes a random event: mostly an object, sometimes the removal of one.
func (w *world) event() store.Event {
	makers := []func() model.Object{
		w.service, w.serviceEntry, w.slice, w.virtualService, w.destinationRule, w.sidecar,
		func() model.Object { return w.workload(model.KindPod) },
		func() model.Object { return w.workload(model.KindWorkloadEntry) },
	}
	o := pick(w, makers)()
	e := store.Event{Key: o.Metadata().Key, Object: o}
	if w.chance(0.25) {
		e.Object = nil
	}
	return e
}

func (w *world) proxy() *model.Proxy {
	return &model.Proxy{
		Type: model.ProxySidecar, Namespace: pick(w, worldNamespaces), Name: "client", IPs: []string{"10.1.0.9"},
		Labels:       map[string]string{"app": pick(w, worldNames), "version": pick(w, worldVersions)},
		Interception: pick(w, []model.Interception{model.InterceptRedirect, model.InterceptNone}),
		Locality:     model.Locality{Region: "r1"},
		DNSDomain:    "a.svc.cluster.local",
	}
}
