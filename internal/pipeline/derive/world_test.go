package derive

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
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

// worldOf returns the world of a seed. Each test has a separate stream of random numbers.
func worldOf(seed, stream uint64) *world {
	return &world{Rand: rand.New(rand.NewPCG(seed, stream)), telemetries: seed%2 == 1, secrets: seed%4 < 2, gateways: seed%3 == 0}
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
	m := model.Meta{
		Key:             model.Key{Kind: kind, Namespace: pick(w, worldNamespaces), Name: pick(w, worldNames)},
		ResourceVersion: fmt.Sprint(w.version),
	}
	if w.chance(0.5) { // as if it had been deleted and made again
		m.Created = time.Unix(int64(w.IntN(3)), 0)
	}
	return m
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

var worldModes = []model.MTLSMode{model.MTLSUnset, model.MTLSDisable, model.MTLSPermissive, model.MTLSStrict}

func (w *world) peerAuthentication() model.Object {
	p := &model.PeerAuthentication{Meta: w.meta(model.KindPeerAuthentication), Mode: pick(w, worldModes)}
	if w.chance(0.5) {
		p.Selector = w.selector()
		p.Ports = map[uint32]model.MTLSMode{pick(w, []uint32{8080, 8443, 7000}): pick(w, worldModes)}
	}
	return p
}

func (w *world) namespace() model.Object {
	m := w.meta(model.KindNamespace)
	m.Namespace, m.Name = "", pick(w, worldNamespaces)
	m.Labels = map[string]string{"team": pick(w, worldNames)}
	return &model.Namespace{Meta: m, Distribution: w.distribution()}
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
	if w.chance(0.3) {
		c.Baseline = &model.TrafficPolicy{ConnectionPool: &model.ConnectionPool{MaxConnections: 5}, OutlierDetection: &model.OutlierDetection{}}
	}
	if w.chance(0.5) {
		c.Locality = w.localityLB()
	}
	if w.chance(0.3) {
		c.TLSDefaults = &model.TLSDefaults{MinVersion: "TLSv1_3", ECDHCurves: []string{pick(w, []string{"P-256", "X25519"})}}
	}
	if w.chance(0.3) {
		yes := true
		c.LocalInbound, c.Headers = &yes, &model.ProxyHeaders{Set: true, NoAttempts: w.chance(0.5), NoDebug: w.chance(0.5)}
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

// event makes a random event: mostly an object, sometimes the removal of one.
func (w *world) event() store.Event {
	makers := []func() model.Object{
		w.service, w.serviceEntry, w.slice, w.virtualService, w.destinationRule, w.sidecar, w.node,
		func() model.Object { return w.workload(model.KindPod) },
		func() model.Object { return w.workload(model.KindWorkloadEntry) },
		w.namespace, w.namespace, w.meshConfig, w.drainNotice, w.envoyFilter, w.peerAuthentication,
		w.authorizationPolicy, w.requestAuthentication, w.keySet,
	}
	if w.secrets {
		makers = append(makers, w.secret, w.configMap, w.credentialRule, w.wasmPlugin, w.backendTLS)
	}
	if w.telemetries {
		makers = append(makers, w.telemetry)
	}
	if w.gateways {
		makers = append(makers, w.gateway, w.gateway, w.boundService, w.boundService, w.boundService, w.kubernetesGateway, w.listenerSet, w.ingress, w.ingress, w.ingressClass, w.kubernetesRoute, w.kubernetesRoute, w.referenceGrant)
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
		ScopedRoutes: w.chance(0.5), Identity: w.chance(0.5), Modules: w.chance(0.7), Files: w.chance(0.7), Uncounted: w.chance(0.2), AnyWorker: w.chance(0.2),
	}
	p.DNSCapture, p.AutoAllocate = w.chance(0.5), w.chance(0.2)
	if w.chance(0.1) {
		p.IPs, p.Labels = nil, map[string]string{}
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

// worldMesh gives out fewer addresses than there are ServiceEntries now and then.
func worldMesh() *model.Mesh {
	m := model.DefaultMesh()
	m.AutoAddresses = model.AutoAddresses{V4: netip.MustParsePrefix("240.0.0.0/29"), V6: netip.MustParsePrefix("2001:2::/125")}
	return m
}

// splitSoon splits the route configurations of the small universe.
var splitSoon = Sharding{From: 3, Bits: 3}

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
		Resolution: model.ResolutionStatic, Visibility: w.visibility(m.Namespace), PublishNotReady: w.chance(0.2), NodeLocal: w.chance(0.05),
		Distribution: w.distribution(), IPv6First: w.chance(0.3),
	}
	if w.chance(0.1) {
		s.Labels = map[string]string{"experimental.istio.io/disable-gateway-port-translation": "true"}
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

// addresses may have one twice: users may write that.
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
	if w.chance(0.1) {
		e.Labels = map[string]string{model.LabelAutoAddress: "false"}
	}
	for _, h := range e.Hosts {
		if w.chance(0.3) {
			e.Status = append(e.Status, model.HostAddress{Host: h, Address: netip.AddrFrom4([4]byte{240, 0, 0, byte(w.IntN(8))})})
		}
	}
	switch w.IntN(4) {
	case 0, 1:
		e.Template.Selector = w.selector()
	case 2:
		for range 1 + w.IntN(3) {
			in := model.Endpoint{
				Address: pick(w, []string{"192.0.2.1", "10.1.0.9", "one.example.net"}), Locality: pick(w, worldLocalities),
				Labels: map[string]string{"version": pick(w, worldVersions)}, ServiceAccount: pick(w, append(worldNames, "", "")),
			}
			w.speakMTLS(in.Labels)
			in.Sidecar = model.EntrySpeaksMTLS(in.Labels, in.ServiceAccount)
			e.Template.Inline = append(e.Template.Inline, in)
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
		if w.chance(0.8) {
			s.Ports = append(s.Ports, model.SlicePort{Name: fmt.Sprintf("p%d", n), Number: n + pick(w, []uint32{8000, 8000, 7000})})
		}
	}
	for i := range w.IntN(3) {
		s.Members = append(s.Members, model.SliceEndpoint{
			Addresses: w.podAddresses(1 + w.IntN(9) + i), Ready: w.chance(0.8), Serving: true,
			Terminating: w.chance(0.3), Pod: pick(w, append(worldNames, "")), Node: pick(w, worldNodes), Zone: pick(w, []string{"", "z1"}),
		})
	}
	return s
}

// podAddresses are mostly one, and few have none.
func (w *world) podAddresses(i int) []string {
	switch w.IntN(12) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("10.1.0.%d", i), fmt.Sprintf("fd00:1::%d", i)}
	case 2:
		return []string{fmt.Sprintf("fd00:1::%d", i)}
	}
	return []string{fmt.Sprintf("10.1.0.%d", i)}
}

func (w *world) workload(kind model.Kind) model.Object {
	return &model.Workload{
		Meta: func() model.Meta {
			m := w.meta(kind)
			m.Labels = map[string]string{"app": pick(w, worldNames), "version": pick(w, worldVersions)}
			w.speakMTLS(m.Labels)
			return m
		}(),
		Addresses: w.podAddresses(1 + w.IntN(5)), Ready: w.chance(0.8), Terminating: w.chance(0.2),
		ServiceAccount: pick(w, append(worldNames, "")),
		Locality:       pick(w, worldLocalities), NamedPorts: w.namedPorts(), Weight: uint32(w.IntN(3)), Node: pick(w, worldNodes),
	}
}

func (w *world) speakMTLS(labels map[string]string) {
	if w.chance(0.6) {
		labels[model.LabelTLSMode] = model.TLSModeLabelIstio
	}
}

var worldNodes = []string{"", "x", "y"}

func (w *world) node() model.Object {
	m := w.meta(model.KindNode)
	m.Namespace = ""
	return &model.Node{Meta: m, Locality: pick(w, worldLocalities)}
}

func (w *world) distribution() model.Distribution {
	if w.chance(0.8) {
		return model.DistributionUnset
	}
	return pick(w, []model.Distribution{model.DistributeSameZone, model.DistributeSameNode})
}

func (w *world) drainNotice() model.Object {
	d := &model.DrainNotice{Meta: w.meta(model.KindDrainNotice)}
	for range 1 + w.IntN(2) {
		d.Addresses = append(d.Addresses, pick(w, []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.9", "192.0.2.1"}))
	}
	return d
}
