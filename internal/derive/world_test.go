package derive

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

// world makes random objects over a small universe, so that they meet often.
type world struct {
	*rand.Rand
	version int
	// telemetries: there are Telemetries, and the mesh has providers.
	telemetries bool
	// secrets: there are Secrets, and rules that name some.
	secrets bool
	// gateways: there are Gateways, and routers.
	gateways bool
}

var (
	worldNamespaces = []string{"a", "b", "istio-system"}
	worldNames      = []string{"x", "y", "z"}
	worldVersions   = []string{"v1", "v2"}
	worldProtocols  = []model.Protocol{
		model.ProtocolHTTP, model.ProtocolHTTP, model.ProtocolGRPC, model.ProtocolGRPCWeb, model.ProtocolTCP,
		model.ProtocolTLS, model.ProtocolHTTPS, model.ProtocolAuto, model.ProtocolAuto, model.ProtocolUDP,
	}
	worldLocalities = []model.Locality{
		{}, {Region: "r1"}, {Region: "r1", Zone: "z1"}, {Region: "r1", Zone: "z1", Subzone: "s1"}, {Region: "r1", Zone: "z2"}, {Region: "r2", Zone: "z1"},
	}
	worldAddresses = []string{
		"10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.0/24", "10.0.1.0/24", "10.0.1.7/24", "fd00::1/128", "fd00::/64",
	}
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
	switch w.IntN(5) {
	case 4:
		return model.Visibility{Public: true}
	case 0:
		return model.Visibility{Private: true, Namespaces: []string{ns}}
	case 1:
		return model.Visibility{Private: true, Namespaces: []string{pick(w, worldNamespaces)}}
	}
	return model.Visibility{}
}

func (w *world) host() model.Host {
	switch w.IntN(12) {
	case 0:
		return "api.example.com"
	case 1:
		return "*.example.com"
	case 2:
		return "other.example.org"
	case 3:
		return pick(w, []model.Host{"*", "*.a.svc.cluster.local", "deep.api.example.com"})
	}
	return model.ResolveHost(pick(w, worldNames), pick(w, worldNamespaces), "cluster.local")
}

func (w *world) ports() []model.ServicePort {
	var out []model.ServicePort
	for _, n := range []uint32{80, 443, 9000} {
		if w.chance(0.5) {
			p := model.ServicePort{Name: fmt.Sprintf("p%d", n), Number: n, Protocol: pick(w, worldProtocols), TargetPort: n + 8000}
			if w.chance(0.2) {
				p.TargetPort, p.TargetName = 0, pick(w, []string{"web", "admin"})
			}
			out = append(out, p)
		}
	}
	return out
}

func (w *world) service() model.Object {
	m := w.meta(model.KindService)
	s := &model.Service{
		Meta: m, Hostname: model.ResolveHost(m.Name, m.Namespace, "cluster.local"), Ports: w.ports(),
		Resolution: model.ResolutionStatic, Visibility: w.visibility(m.Namespace), PublishNotReady: w.chance(0.2),
		Distribution: w.distribution(),
	}
	if w.chance(0.7) {
		s.Selector = w.selector()
	}
	switch w.IntN(6) {
	case 0:
		s.Headless = true
	case 1:
		s.ExternalName, s.Selector = w.host(), nil
	default:
		s.Addresses = w.addresses(2)
	}
	return s
}

func (w *world) selector() map[string]string {
	out := map[string]string{"app": pick(w, worldNames)}
	if w.chance(0.2) {
		out["version"] = pick(w, worldVersions)
	}
	return out
}

// addresses may have one twice: nobody stops a user from writing that.
func (w *world) addresses(most int) []netip.Prefix {
	var out []netip.Prefix
	for range 1 + w.IntN(most) {
		out = append(out, netip.MustParsePrefix(pick(w, worldAddresses)))
	}
	return out
}

func (w *world) serviceEntry() model.Object {
	m := w.meta(model.KindServiceEntry)
	e := &model.ServiceEntry{Meta: m, Hosts: w.hosts(3)}
	e.Template = model.Service{
		Ports: w.ports(), External: w.chance(0.5), Visibility: w.visibility(m.Namespace),
		Resolution: pick(w, []model.Resolution{
			model.ResolutionStatic, model.ResolutionStatic, model.ResolutionDNS, model.ResolutionDNSRoundRobin, model.ResolutionNone,
		}),
	}
	e.Template.Distribution = w.distribution()
	if w.chance(0.15) {
		e.Hosts, e.Template.Resolution = []model.Host{"*.example.com"}, model.ResolutionDynamicDNS
	}
	if w.chance(0.5) {
		e.Template.Addresses = w.addresses(3)
	}
	switch w.IntN(4) {
	case 0, 1:
		e.Template.Selector = w.selector()
	case 2:
		for range 1 + w.IntN(3) {
			e.Template.Inline = append(e.Template.Inline, model.Endpoint{
				Address: pick(w, []string{"192.0.2.1", "10.1.0.9", "one.example.net"}), Locality: pick(w, worldLocalities),
				Labels: map[string]string{"version": pick(w, worldVersions)},
			})
			w.speakMTLS(e.Template.Inline[len(e.Template.Inline)-1].Labels)
		}
	}
	return e
}

// hosts are some, each once.
func (w *world) hosts(most int) []model.Host {
	var out []model.Host
	for range 1 + w.IntN(most) {
		if h := w.host(); !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

func (w *world) slice() model.Object {
	s := &model.EndpointSlice{Meta: w.meta(model.KindEndpointSlice), Service: pick(w, worldNames), PodsListed: w.chance(0.5)}
	for _, n := range []uint32{80, 443, 9000} {
		s.Ports = append(s.Ports, model.SlicePort{Name: fmt.Sprintf("p%d", n), Number: n + 8000})
	}
	for i := range w.IntN(3) {
		s.Members = append(s.Members, model.SliceEndpoint{
			Addresses: []string{fmt.Sprintf("10.1.0.%d", 1+w.IntN(9)+i)}, Ready: w.chance(0.8), Serving: true,
			Terminating: w.chance(0.3), Pod: pick(w, append(worldNames, "")), Node: pick(w, worldNodes),
		})
	}
	return s
}

func (w *world) workload(kind model.Kind) model.Object {
	return &model.Workload{
		Meta: func() model.Meta {
			m := w.meta(kind)
			m.Labels = map[string]string{"app": pick(w, worldNames), "version": pick(w, worldVersions)}
			w.speakMTLS(m.Labels)
			return m
		}(),
		Addresses: []string{fmt.Sprintf("10.1.0.%d", 1+w.IntN(5))}, Ready: w.chance(0.8), Terminating: w.chance(0.2),
		ServiceAccount: pick(w, append(worldNames, "")),
		Locality:       pick(w, worldLocalities), NamedPorts: w.namedPorts(), Weight: uint32(w.IntN(3)), Node: pick(w, worldNodes),
	}
}

func (w *world) speakMTLS(labels map[string]string) {
	if w.chance(0.6) {
		labels[model.LabelTLSMode] = model.TLSModeLabelIstio
	}
}

var worldModes = []model.MTLSMode{model.MTLSUnset, model.MTLSDisable, model.MTLSPermissive, model.MTLSStrict}

func (w *world) peerAuthentication() model.Object {
	p := &model.PeerAuthentication{Meta: w.meta(model.KindPeerAuthentication), Mode: pick(w, worldModes)}
	if w.chance(0.5) {
		p.Selector = w.selector()
		p.Ports = map[uint32]model.MTLSMode{pick(w, []uint32{8080, 8443, 7000}): pick(w, worldModes)}
	}
	return p
}

var worldNodes = []string{"", "x", "y"}

func (w *world) node() model.Object {
	m := w.meta(model.KindNode)
	m.Namespace = ""
	return &model.Node{Meta: m, Locality: pick(w, worldLocalities)}
}

func (w *world) namespace() model.Object {
	m := w.meta(model.KindNamespace)
	m.Namespace, m.Name = "", pick(w, worldNamespaces)
	m.Labels = map[string]string{"team": pick(w, worldNames)}
	return &model.Namespace{Meta: m, Distribution: w.distribution()}
}

func (w *world) distribution() model.Distribution {
	if w.chance(0.8) {
		return model.DistributionUnset
	}
	return pick(w, []model.Distribution{model.DistributeSameZone, model.DistributeSameNode})
}

func (w *world) meshConfig() model.Object {
	m := w.meta(model.KindMeshConfig)
	m.Namespace, m.Name = pick(w, worldNamespaces), model.MeshConfigName
	c := &model.MeshConfig{Meta: m}
	if w.telemetries {
		c.Telemetry = w.meshTelemetry()
	}
	if w.chance(0.5) {
		mode := pick(w, []model.OutboundMode{model.OutboundAllowAny, model.OutboundRegistryOnly})
		c.Outbound = &mode
	}
	if w.chance(0.3) {
		off := false
		c.AutoMTLS, c.TrustDomainAliases = &off, []string{"old.example.org"}
	}
	if w.chance(0.5) {
		c.Locality = w.localityLB()
	}
	if w.chance(0.3) {
		c.TLSDefaults = &model.TLSDefaults{MinVersion: "TLSv1_3", ECDHCurves: []string{pick(w, []string{"P-256", "X25519"})}}
	}
	if w.chance(0.3) {
		yes := true
		c.LocalInbound, c.Headers = &yes, &model.ProxyHeaders{Said: true, NoAttempts: w.chance(0.5), NoDebug: w.chance(0.5)}
	}
	c.Authorizers = w.authorizers()
	if w.chance(0.5) {
		file := "/dev/stdout"
		c.AccessLogFile = &file
	}
	if w.chance(0.5) {
		c.ExportTo = map[model.Kind][]string{pick(w, []model.Kind{model.KindService, model.KindVirtualService, model.KindDestinationRule}): {
			pick(w, []string{"*", ".", "~", "a"}),
		}}
	}
	if w.chance(0.5) {
		c.Discovery = []model.LabelSelector{
			{Labels: map[string]string{"team": pick(w, worldNames)}},
			{Expressions: []model.LabelExpression{{
				Key: "team", Operator: pick(w, []model.LabelOperator{model.LabelIn, model.LabelNotIn}), Values: []string{pick(w, worldNames)},
			}}},
		}
	}
	return c
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
			Namespace: pick(w, append(worldNamespaces, "*")), Host: pick(w, []model.Host{"*", w.host()}), Exclude: w.chance(0.15),
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

// event makes a random event: mostly an object, sometimes the removal of one.
func (w *world) departure() model.Object {
	d := &model.Departure{Meta: w.meta(model.KindDeparture)}
	for range 1 + w.IntN(2) {
		d.Addresses = append(d.Addresses, pick(w, []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.9", "192.0.2.1"}))
	}
	return d
}

func (w *world) event() store.Event {
	makers := []func() model.Object{
		w.service, w.serviceEntry, w.slice, w.virtualService, w.destinationRule, w.sidecar, w.node,
		func() model.Object { return w.workload(model.KindPod) },
		func() model.Object { return w.workload(model.KindWorkloadEntry) },
		w.namespace, w.namespace, w.meshConfig, w.departure, w.envoyFilter, w.peerAuthentication,
		w.authorizationPolicy, w.requestAuthentication, w.keySet,
	}
	if w.secrets {
		makers = append(makers, w.secret, w.configMap, w.credentialRule, w.wasmPlugin)
	}
	if w.telemetries {
		makers = append(makers, w.telemetry)
	}
	if w.gateways {
		makers = append(makers, w.gateway, w.gateway, w.boundService, w.boundService, w.boundService, w.kubernetesGateway, w.kubernetesRoute, w.kubernetesRoute, w.referenceGrant)
	}
	o := pick(w, makers)()
	e := store.Event{Key: o.Metadata().Key, Object: o}
	if w.chance(0.25) {
		e.Object = nil
	}
	return e
}

func (w *world) proxy() *model.Proxy {
	p := &model.Proxy{
		Type: model.ProxySidecar, Namespace: pick(w, worldNamespaces), Name: pick(w, append(worldNames, "client")), IPs: pick(w, [][]string{{"10.1.0.9"}, {"10.1.0.9"}, {"fd00:1::9"}, {"10.1.0.9", "fd00:1::9"}}),
		Labels:       map[string]string{"app": pick(w, worldNames), "version": pick(w, worldVersions)},
		Interception: pick(w, []model.Interception{model.InterceptRedirect, model.InterceptRedirect, model.InterceptTProxy, model.InterceptNone}),
		Locality:     pick(w, worldLocalities),
		NamedPorts:   w.namedPorts(),
		DNSDomain:    "a.svc.cluster.local",
		IstioVersion: pick(w, worldProxyVersions), Metadata: map[string]string{"TEAM": pick(w, worldNames)},
		ScopedRoutes: w.chance(0.5), Identity: w.chance(0.5), Uncounted: w.chance(0.2), AnyWorker: w.chance(0.2),
	}
	if w.secrets {
		p.ServiceAccount, p.Verified = pick(w, worldAccounts), w.chance(0.7)
		p.Names, p.Extensions, p.Modules = w.chance(0.2), w.chance(0.2), w.chance(0.5)
	}
	if w.gateways && w.chance(0.6) {
		p.Type = model.ProxyRouter
		p.Labels[model.LabelGatewayName] = pick(w, worldNames)
	}
	return p
}

// splitSoon makes scoped scopes split route configurations of the small universe.
var splitSoon = Split{From: 3, Bits: 3}
