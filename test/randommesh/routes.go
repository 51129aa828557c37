package randommesh

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/model"
)

func (w *World) destination() model.Destination {
	d := model.Destination{Host: w.host()}
	if w.Chance(0.3) {
		d.Subset = Pick(w, versions)
	}
	if w.Chance(0.3) {
		d.Port = 80
	}
	return d
}

func (w *World) namedPorts() map[string]uint32 {
	out := map[string]uint32{}
	for _, n := range []string{"web", "admin", "p80"} {
		if w.Chance(0.4) {
			out[n] = uint32(7000 + w.IntN(3))
		}
	}
	return out
}

func (w *World) backends() []model.Backend {
	if w.Chance(0.3) {
		return []model.Backend{{Destination: w.destination()}}
	}
	return []model.Backend{{Destination: w.destination(), Weight: uint32(10 * w.IntN(2))}, {Destination: w.destination(), Weight: 90}}
}

func (w *World) virtualService() model.Object {
	m := w.meta(model.KindVirtualService)
	v := &model.VirtualService{Meta: m, Gateways: []string{model.GatewayMesh}, Visibility: w.visibility(m.Namespace)}
	if w.Chance(0.8) {
		v.Hosts = w.hosts(2)
	}
	if w.Chance(0.1) {
		v.Gateways = []string{"istio-system/ingress"}
	}
	for range w.IntN(4) {
		v.HTTP = append(v.HTTP, w.httpRoute(len(v.Hosts) > 0))
	}
	if w.Chance(0.3) {
		v.TCP = []model.TCPRoute{{Matches: w.l4Matches(nil), Backends: w.backends()}, {Backends: w.backends()}}
	}
	if w.Chance(0.3) && len(v.Hosts) > 0 {
		v.TLS = []model.TLSRoute{{Matches: append(w.l4Matches(v.Hosts), model.L4Match{SNIHosts: v.Hosts}), Backends: w.backends()}}
	}
	return v
}

func (w *World) httpRoute(mayDelegate bool) model.HTTPRoute {
	rule := model.HTTPRoute{}
	for range w.IntN(3) {
		match := model.HTTPMatch{URI: &model.StringMatch{Kind: Pick(w, []model.MatchKind{model.MatchPrefix, model.MatchExact}), Value: "/" + Pick(w, names)}}
		if w.Chance(0.3) {
			match.SourceLabels = map[string]string{Pick(w, []string{"app", "version"}): Pick(w, names)}
		}
		if w.Chance(0.2) {
			match.Port = Pick(w, []uint32{80, 9000})
		}
		if w.Chance(0.2) {
			match.SourceNamespace = Pick(w, namespaces)
		}
		rule.Matches = append(rule.Matches, match)
	}
	switch n := w.IntN(10); {
	case n == 0:
		rule.Redirect = &model.Redirect{URI: "/elsewhere", Code: 301}
	case n == 1:
		rule.DirectResponse = &model.DirectResponse{Status: 418}
	case n < 4 && mayDelegate:
		rule.Delegate = &model.Key{Kind: model.KindVirtualService, Namespace: Pick(w, namespaces), Name: Pick(w, names)}
	default:
		rule.Backends = w.backends()
		if w.Chance(0.2) {
			rule.Mirrors = &model.Mirrors{List: []model.Mirror{{Destination: w.destination(), Percent: 10}}}
		}
	}
	return rule
}

func (w *World) l4Matches(sni []model.Host) []model.L4Match {
	var out []model.L4Match
	for range w.IntN(3) {
		m := model.L4Match{SNIHosts: sni}
		if w.Chance(0.5) {
			m.Destinations = w.addresses(2)
		}
		if w.Chance(0.3) {
			m.Port = Pick(w, []uint32{443, 9000})
		}
		if w.Chance(0.3) {
			m.SourceLabels = map[string]string{"app": Pick(w, names)}
		}
		out = append(out, m)
	}
	return out
}

func (w *World) localityLB() *model.LocalityLB {
	return Pick(w, []*model.LocalityLB{
		{Failover: []model.LocalityFailover{{From: "r1", To: "r2"}}},
		{Distribute: []model.LocalityDistribute{{From: "r1/*", To: map[string]uint32{"r1/*": 80, "r2/*": 20}}}},
		{FailoverPriority: []string{"topology.kubernetes.io/region", "version"}},
		{FailoverPriority: []string{model.LabelNode, "app=x"}},
	})
}

func (w *World) policy() model.TrafficPolicy {
	var p model.TrafficPolicy
	switch w.IntN(8) {
	case 0:
		p.LoadBalancer = &model.LoadBalancer{Algorithm: model.LBRingHash, Hash: &model.HashPolicy{Header: "x-user"}}
	case 1:
		p.LoadBalancer = &model.LoadBalancer{Algorithm: model.LBPassthrough}
	case 2, 3, 4:
		p.LoadBalancer = &model.LoadBalancer{Locality: w.localityLB()}
	}
	if w.Chance(0.4) {
		p.OutlierDetection = &model.OutlierDetection{}
	}
	if w.Chance(0.2) {
		p.ConnectionPool = &model.ConnectionPool{MaxConnections: uint32(1 + w.IntN(3))}
	}
	if w.Chance(0.3) {
		p.TLS = &model.ClientTLS{Mode: Pick(w, []model.TLSMode{model.TLSDisable, model.TLSSimple, model.TLSIstioMutual, model.TLSIstioMutual})}
	}
	return p
}

func (w *World) portPolicies() map[uint32]model.TrafficPolicy {
	if w.Chance(0.7) {
		return nil
	}
	return map[uint32]model.TrafficPolicy{Pick(w, []uint32{80, 443}): w.policy()}
}

func (w *World) destinationRule() model.Object {
	m := w.meta(model.KindDestinationRule)
	d := &model.DestinationRule{Meta: m, Host: w.host(), Visibility: w.visibility(m.Namespace), Ports: w.portPolicies()}
	for _, v := range versions {
		if w.Chance(0.6) {
			d.Subsets = append(d.Subsets, model.Subset{Name: v, Labels: map[string]string{"version": v}, Ports: w.portPolicies()})
		}
	}
	if w.Chance(0.5) {
		d.Policy = w.policy()
	}
	if w.Chance(0.2) {
		d.WorkloadSelector = map[string]string{"app": Pick(w, names)}
	}
	return d
}

func (w *World) sidecar() model.Object {
	s := &model.Sidecar{Meta: w.meta(model.KindSidecar)}
	if w.Chance(0.5) {
		s.Selector = map[string]string{"app": Pick(w, names)}
	}
	if w.Chance(0.3) {
		s.Outbound = model.OutboundRegistryOnly
	}
	if w.Chance(0.2) {
		s.EgressProxy = &model.Destination{Host: w.host(), Port: 80}
	}
	if w.Chance(0.2) {
		s.InboundPool = &model.ConnectionPool{MaxConnections: 7}
	}
	for range w.IntN(4) {
		s.Egress = append(s.Egress, w.egress())
	}
	for _, n := range []uint32{7000, 8080} {
		if w.Chance(0.2) {
			s.Ingress = append(s.Ingress, model.IngressListener{
				Port: model.SidecarPort{Number: n, Protocol: Pick(w, protocols)}, Capture: Pick(w, captures),
				Endpoint: Pick(w, []string{"", "127.0.0.1:9999", "0.0.0.0:9999", "unix:///run/app.sock"}),
			})
			if w.Secrets && w.Chance(0.6) {
				w.ingressTLS(&s.Ingress[len(s.Ingress)-1])
			}
		}
	}
	return s
}

var captures = []model.CaptureMode{model.CaptureDefault, model.CaptureNone, model.CaptureIPTables}

func (w *World) egress() model.EgressListener {
	var e model.EgressListener
	for range 1 + w.IntN(2) {
		e.Hosts = append(e.Hosts, model.HostSelector{
			Namespace: Pick(w, append(namespaces, "*", model.HostsHere)), Host: Pick(w, []model.Host{"*", w.host()}), Exclude: w.Chance(0.15),
		})
	}
	if w.Chance(0.4) {
		e.Port = &model.SidecarPort{
			Number: Pick(w, []uint32{80, 9000}), Protocol: Pick(w, []model.Protocol{model.ProtocolHTTP, model.ProtocolTCP, model.ProtocolAuto, ""}),
		}
	}
	if w.Chance(0.4) {
		e.Capture = Pick(w, captures)
	}
	if w.Chance(0.3) {
		e.Bind = Pick(w, []string{"127.0.0.9", "10.0.0.1"})
	}
	return e
}

func (w *World) gateway() model.Object {
	g := &model.Gateway{Meta: w.meta(model.KindGateway)}
	if w.Chance(0.8) {
		g.Selector = w.selector()
	}
	for i := range 1 + w.IntN(3) {
		g.Servers = append(g.Servers, w.server(i))
	}
	return g
}

func (w *World) server(i int) model.GatewayServer {
	s := model.GatewayServer{Port: model.GatewayPort{
		Number: Pick(w, []uint32{80, 443, 443, 9000}), Name: fmt.Sprint("s", i),
		Protocol: Pick(w, []model.Protocol{model.ProtocolHTTP, model.ProtocolHTTP, model.ProtocolHTTPS, model.ProtocolHTTPS, model.ProtocolTLS, model.ProtocolTCP}),
	}}
	if w.Chance(0.2) {
		s.Bind = "10.0.0.1"
	}
	for _, h := range w.hosts(3) {
		s.Hosts = append(s.Hosts, model.HostSelector{Namespace: Pick(w, append(namespaces, "*", "*")), Host: h})
	}
	s.HTTPSRedirect = s.Port.Protocol.IsHTTP() && w.Chance(0.3)
	if s.Port.Protocol.IsTLS() {
		s.TLS = &model.ServerTLS{Mode: Pick(w, []model.ServerTLSMode{
			model.ServerPassthrough, model.ServerSimple, model.ServerSimple, model.ServerMutual, model.ServerOptionalMutual, model.ServerIstioMutual,
		})}
		if s.TLS.EndsTLS() && s.TLS.Mode != model.ServerIstioMutual {
			s.TLS.CredentialNames = []string{Pick(w, names)}
		}
	}
	return s
}

// boundService is a virtual service of gateways, and sometimes of sidecars, too.
func (w *World) boundService() model.Object {
	v := w.virtualService().(*model.VirtualService)
	v.Gateways = []string{Pick(w, namespaces) + "/" + Pick(w, names)}
	if w.Chance(0.3) {
		v.Gateways = append(v.Gateways, Pick(w, namespaces)+"/"+Pick(w, names), model.GatewayMesh)
	}
	for i := range v.HTTP {
		for j := range v.HTTP[i].Matches {
			if w.Chance(0.2) {
				v.HTTP[i].Matches[j].Gateways = v.Gateways[:1]
			}
		}
	}
	return v
}

func (w *World) kubernetesGateway() model.Object {
	g := w.gateway().(*model.Gateway)
	g.Kind, g.OwnNamespace = model.KindKubernetesGateway, true
	for i := range g.Servers {
		g.Servers[i].Hosts = g.Servers[i].Hosts[:1]
		g.Servers[i].Routes = Pick(w, [][]model.Kind{
			{model.KindHTTPRoute, model.KindGRPCRoute}, {model.KindHTTPRoute}, {model.KindTLSRoute}, {model.KindTCPRoute}, {model.KindTLSRoute, model.KindTCPRoute},
		})
		if w.Chance(0.5) {
			g.Servers[i].Namespaces = w.namespaceSelector()
		}
		if t := g.Servers[i].TLS; t.EndsTLS() && t.Mode != model.ServerIstioMutual && w.Chance(0.5) {
			t.CredentialNames = append(t.CredentialNames, model.CredentialURL(Pick(w, namespaces)+"/"+Pick(w, names)))
			t.CredentialNames = t.CredentialNames[w.IntN(2):]
		}
	}
	if w.Chance(0.5) {
		g.ClientValidations = map[uint32]model.ClientValidation{0: w.clientValidation(), 443: w.clientValidation()}
	}
	if w.Chance(0.5) {
		g.ClientCertificate = Pick(w, []string{Pick(w, names), model.CredentialURL(Pick(w, namespaces) + "/" + Pick(w, names))})
	}
	if w.Chance(0.6) {
		g.ListenerSets = Pick(w, []*model.NamespaceSelection{{Namespace: "*"}, {Namespace: g.Namespace}, {Selector: w.namespaceSelector()}})
	}
	return g
}

func (w *World) clientValidation() model.ClientValidation {
	v := model.ClientValidation{Required: w.Chance(0.6), Insecure: w.Chance(0.3)}
	for range w.IntN(3) {
		v.CAs = append(v.CAs, model.Key{Kind: model.KindConfigMap, Namespace: Pick(w, namespaces), Name: Pick(w, names)})
	}
	return v
}

// listenerSet has further listeners for a Gateway of the Gateway API.
func (w *World) listenerSet() model.Object {
	g := w.kubernetesGateway().(*model.Gateway)
	g.Meta = w.meta(model.KindListenerSet)
	g.Parent = model.Key{Kind: model.KindKubernetesGateway, Namespace: Pick(w, namespaces), Name: Pick(w, names)}
	g.ListenerSets, g.ClientValidations, g.ClientCertificate, g.OwnNamespace = nil, nil, "", true
	return g
}

// ingress is of some class. Routers of the world have no label "istio", except by its settings.
func (w *World) ingress() model.Object {
	i := &model.Ingress{Meta: w.meta(model.KindIngress), Class: Pick(w, append(names, ""))}
	if w.Chance(0.3) {
		i.Annotation = &Pick(w, [][]string{{"istio"}, {"nginx"}})[0]
	}
	i.Servers = []model.GatewayServer{{
		Port: model.GatewayPort{Number: 80, Name: "http", Protocol: model.ProtocolHTTP}, Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}},
	}}
	if w.Chance(0.5) {
		i.Servers = append(i.Servers, model.GatewayServer{
			Port: model.GatewayPort{Number: 443, Name: "https", Protocol: model.ProtocolHTTPS}, Hosts: []model.HostSelector{{Namespace: "*", Host: Pick(w, w.hosts(3))}},
			TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{Pick(w, names)}},
		})
	}
	for n, h := range w.hosts(2) {
		if n > 0 && h == i.Rules[0].Hosts[0] {
			continue
		}
		i.Rules = append(i.Rules, &model.VirtualService{
			Meta: i.Meta, Hosts: []model.Host{h}, Gateways: []string{model.IngressGatewayName(i.Namespace, i.Name)},
			HTTP: []model.HTTPRoute{{Backends: []model.Backend{{Weight: 100, Destination: model.Destination{Host: Pick(w, w.hosts(3)), PortName: Pick(w, []string{"http", "p0"})}}}}},
		})
	}
	return i
}

func (w *World) ingressClass() model.Object {
	m := w.meta(model.KindIngressClass)
	m.Namespace = ""
	return &model.IngressClass{Meta: m, Istio: w.Chance(0.6)}
}

func (w *World) namespaceSelector() *model.LabelSelector {
	return Pick(w, []*model.LabelSelector{
		{}, {Labels: map[string]string{"team": Pick(w, names)}}, {Labels: model.ImpliedLabels(Pick(w, namespaces))},
		{Expressions: []model.LabelExpression{{Key: "team", Operator: Pick(w, []model.LabelOperator{model.LabelExists, model.LabelDoesNotExist})}}},
	})
}

// kubernetesRoute is bound to Gateways of the Gateway API, or to listeners of these.
func (w *World) kubernetesRoute() model.Object {
	v := w.boundService().(*model.VirtualService)
	v.Kind, v.Visibility = Pick(w, []model.Kind{model.KindHTTPRoute, model.KindHTTPRoute, model.KindGRPCRoute, model.KindTLSRoute, model.KindTCPRoute}), model.Visibility{}
	if v.Kind == model.KindTLSRoute || v.Kind == model.KindTCPRoute {
		v.HTTP = nil
	} else {
		v.TCP, v.TLS = nil, nil
	}
	if len(v.Hosts) == 0 {
		v.Hosts = []model.Host{"*"}
	}
	name := Pick(w, []func(namespace, name, listener string, port uint32) string{model.KubernetesGatewayName, model.ListenerSetName})
	v.Gateways = []string{name(Pick(w, namespaces), Pick(w, names), Pick(w, []string{"", "s0", "s1"}), Pick(w, []uint32{0, 80, 443}))}
	if w.Chance(0.6) {
		w.addParents(v)
	}
	for i := range v.HTTP {
		for j := range v.HTTP[i].Backends {
			if w.Chance(0.3) {
				v.HTTP[i].Backends[j].Grant = &model.Key{Kind: model.KindService, Namespace: Pick(w, namespaces), Name: Pick(w, names)}
			}
		}
	}
	return v
}

// addParents makes a route one for sidecars, sometimes for them alone.
func (w *World) addParents(v *model.VirtualService) {
	if w.Chance(0.7) {
		v.Gateways = nil
	}
	v.Gateways = append(v.Gateways, model.GatewayMesh)
	for range 1 + w.IntN(3) {
		p := model.MeshParent{Namespace: Pick(w, namespaces), Port: Pick(w, []uint32{0, 0, 80, 443, 9000})}
		if w.Chance(0.4) {
			p.Entry = &model.Key{Kind: model.KindServiceEntry, Namespace: p.Namespace, Name: Pick(w, names)}
		} else {
			p.Host = Pick(w, w.hosts(3))
		}
		v.Parents = append(v.Parents, p)
	}
}

func (w *World) referenceGrant() model.Object {
	if w.Chance(0.5) {
		return &model.ReferenceGrant{
			Meta: w.meta(model.KindReferenceGrant), From: []model.GrantFrom{{Kind: Pick(w, []string{"Gateway", "ListenerSet"}), Namespace: Pick(w, namespaces)}},
			To: []model.GrantTo{{Kind: string(Pick(w, []model.Kind{model.KindSecret, model.KindConfigMap})), Name: Pick(w, append(names, ""))}},
		}
	}
	return &model.ReferenceGrant{
		Meta: w.meta(model.KindReferenceGrant),
		From: []model.GrantFrom{{Kind: string(Pick(w, []model.Kind{model.KindHTTPRoute, model.KindGRPCRoute})), Namespace: Pick(w, namespaces)}},
		To:   []model.GrantTo{{Kind: string(model.KindService), Name: Pick(w, append(names, ""))}},
	}
}
