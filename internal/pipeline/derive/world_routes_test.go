package derive

import (
	"github.com/moonsail/moonsail/internal/model"
)

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

func (w *world) namedPorts() map[string]uint32 {
	out := map[string]uint32{}
	for _, n := range []string{"web", "admin", "p80"} {
		if w.chance(0.4) {
			out[n] = uint32(7000 + w.IntN(3))
		}
	}
	return out
}

func (w *world) backends() []model.Backend {
	if w.chance(0.3) {
		return []model.Backend{{Destination: w.destination()}}
	}
	return []model.Backend{{Destination: w.destination(), Weight: uint32(10 * w.IntN(2))}, {Destination: w.destination(), Weight: 90}}
}

func (w *world) virtualService() model.Object {
	m := w.meta(model.KindVirtualService)
	v := &model.VirtualService{Meta: m, Gateways: []string{model.GatewayMesh}, Visibility: w.visibility(m.Namespace)}
	if w.chance(0.8) {
		v.Hosts = w.hosts(2)
	}
	if w.chance(0.1) {
		v.Gateways = []string{"istio-system/ingress"}
	}
	for range w.IntN(4) {
		v.HTTP = append(v.HTTP, w.httpRoute(len(v.Hosts) > 0))
	}
	if w.chance(0.3) {
		v.TCP = []model.TCPRoute{{Matches: w.l4Matches(nil), Backends: w.backends()}, {Backends: w.backends()}}
	}
	if w.chance(0.3) && len(v.Hosts) > 0 {
		v.TLS = []model.TLSRoute{{Matches: append(w.l4Matches(v.Hosts), model.L4Match{SNIHosts: v.Hosts}), Backends: w.backends()}}
	}
	return v
}

func (w *world) httpRoute(mayDelegate bool) model.HTTPRoute {
	rule := model.HTTPRoute{}
	for range w.IntN(3) {
		match := model.HTTPMatch{URI: &model.StringMatch{Kind: pick(w, []model.MatchKind{model.MatchPrefix, model.MatchExact}), Value: "/" + pick(w, worldNames)}}
		if w.chance(0.3) {
			match.SourceLabels = map[string]string{pick(w, []string{"app", "version"}): pick(w, worldNames)}
		}
		if w.chance(0.2) {
			match.Port = pick(w, []uint32{80, 9000})
		}
		if w.chance(0.2) {
			match.SourceNamespace = pick(w, worldNamespaces)
		}
		rule.Matches = append(rule.Matches, match)
	}
	switch n := w.IntN(10); {
	case n == 0:
		rule.Redirect = &model.Redirect{URI: "/elsewhere", Code: 301}
	case n == 1:
		rule.DirectResponse = &model.DirectResponse{Status: 418}
	case n < 4 && mayDelegate:
		rule.Delegate = &model.Key{Kind: model.KindVirtualService, Namespace: pick(w, worldNamespaces), Name: pick(w, worldNames)}
	default:
		rule.Backends = w.backends()
		if w.chance(0.2) {
			rule.Mirrors = []model.Mirror{{Destination: w.destination(), Percent: 10}}
		}
	}
	return rule
}

func (w *world) l4Matches(sni []model.Host) []model.L4Match {
	var out []model.L4Match
	for range w.IntN(3) {
		m := model.L4Match{SNIHosts: sni}
		if w.chance(0.5) {
			m.Destinations = w.addresses(2)
		}
		if w.chance(0.3) {
			m.Port = pick(w, []uint32{443, 9000})
		}
		if w.chance(0.3) {
			m.SourceLabels = map[string]string{"app": pick(w, worldNames)}
		}
		out = append(out, m)
	}
	return out
}

func (w *world) localityLB() *model.LocalityLB {
	return pick(w, []*model.LocalityLB{
		{Failover: []model.LocalityFailover{{From: "r1", To: "r2"}}},
		{Distribute: []model.LocalityDistribute{{From: "r1/*", To: map[string]uint32{"r1/*": 80, "r2/*": 20}}}},
		{FailoverPriority: []string{"topology.kubernetes.io/region", "version"}},
		{FailoverPriority: []string{model.LabelNode, "app=x"}},
	})
}

func (w *world) policy() model.TrafficPolicy {
	var p model.TrafficPolicy
	switch w.IntN(8) {
	case 0:
		p.LoadBalancer = &model.LoadBalancer{Algorithm: model.LBRingHash, Hash: &model.HashPolicy{Header: "x-user"}}
	case 1:
		p.LoadBalancer = &model.LoadBalancer{Algorithm: model.LBPassthrough}
	case 2, 3, 4:
		p.LoadBalancer = &model.LoadBalancer{Locality: w.localityLB()}
	}
	if w.chance(0.4) {
		p.OutlierDetection = &model.OutlierDetection{}
	}
	if w.chance(0.2) {
		p.ConnectionPool = &model.ConnectionPool{MaxConnections: uint32(1 + w.IntN(3))}
	}
	if w.chance(0.3) {
		p.TLS = &model.ClientTLS{Mode: pick(w, []model.TLSMode{model.TLSDisable, model.TLSSimple, model.TLSIstioMutual, model.TLSIstioMutual})}
	}
	return p
}

func (w *world) portPolicies() map[uint32]model.TrafficPolicy {
	if w.chance(0.7) {
		return nil
	}
	return map[uint32]model.TrafficPolicy{pick(w, []uint32{80, 443}): w.policy()}
}

func (w *world) destinationRule() model.Object {
	m := w.meta(model.KindDestinationRule)
	d := &model.DestinationRule{Meta: m, Host: w.host(), Visibility: w.visibility(m.Namespace), Ports: w.portPolicies()}
	for _, v := range worldVersions {
		if w.chance(0.6) {
			d.Subsets = append(d.Subsets, model.Subset{Name: v, Labels: map[string]string{"version": v}, Ports: w.portPolicies()})
		}
	}
	if w.chance(0.5) {
		d.Policy = w.policy()
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
	if w.chance(0.2) {
		s.InboundPool = &model.ConnectionPool{MaxConnections: 7}
	}
	for range w.IntN(4) {
		s.Egress = append(s.Egress, w.egress())
	}
	for _, n := range []uint32{7000, 8080} {
		if w.chance(0.2) {
			s.Ingress = append(s.Ingress, model.IngressListener{
				Port: model.SidecarPort{Number: n, Protocol: pick(w, worldProtocols)}, Capture: pick(w, worldCaptures),
				Endpoint: pick(w, []string{"", "127.0.0.1:9999", "0.0.0.0:9999", "unix:///run/app.sock"}),
			})
			if w.secrets && w.chance(0.6) {
				w.ingressTLS(&s.Ingress[len(s.Ingress)-1])
			}
		}
	}
	return s
}

var worldCaptures = []model.CaptureMode{model.CaptureDefault, model.CaptureNone, model.CaptureIPTables}

func (w *world) egress() model.EgressListener {
	var e model.EgressListener
	for range 1 + w.IntN(2) {
		e.Hosts = append(e.Hosts, model.HostSelector{
			Namespace: pick(w, append(worldNamespaces, "*", model.HostsHere)), Host: pick(w, []model.Host{"*", w.host()}), Exclude: w.chance(0.15),
		})
	}
	if w.chance(0.4) {
		e.Port = &model.SidecarPort{
			Number: pick(w, []uint32{80, 9000}), Protocol: pick(w, []model.Protocol{model.ProtocolHTTP, model.ProtocolTCP, model.ProtocolAuto, ""}),
		}
	}
	if w.chance(0.4) {
		e.Capture = pick(w, worldCaptures)
	}
	if w.chance(0.3) {
		e.Bind = pick(w, []string{"127.0.0.9", "10.0.0.1"})
	}
	return e
}
