// Package randommesh makes random objects of the model, of all kinds, for property tests. They are over a small universe of names
// and addresses, so that they meet often. A seed repeats them.
package randommesh

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// World makes random objects over a small universe, so that they meet often.
type World struct {
	*rand.Rand
	version int
	// Telemetries: there are Telemetries, and the mesh has providers.
	Telemetries bool
	// Secrets: there are Secrets, and rules that name some.
	Secrets bool
	// Gateways: there are Gateways, and routers.
	Gateways bool
}

// New returns the world of a seed. Each test has a separate stream of random numbers.
func New(seed, stream uint64) *World {
	return &World{Rand: rand.New(rand.NewPCG(seed, stream)), Telemetries: seed%2 == 1, Secrets: seed%4 < 2, Gateways: seed%3 == 0}
}

var (
	namespaces = []string{"a", "b", "istio-system"}
	names      = []string{"x", "y", "z"}
	versions   = []string{"v1", "v2"}
	protocols  = []model.Protocol{
		model.ProtocolHTTP, model.ProtocolHTTP, model.ProtocolGRPC, model.ProtocolGRPCWeb, model.ProtocolTCP,
		model.ProtocolTLS, model.ProtocolHTTPS, model.ProtocolAuto, model.ProtocolAuto, model.ProtocolUDP,
	}
	localities = []model.Locality{
		{}, {Region: "r1"}, {Region: "r1", Zone: "z1"}, {Region: "r1", Zone: "z1", Subzone: "s1"}, {Region: "r1", Zone: "z2"}, {Region: "r2", Zone: "z1"},
	}
	addresses = []string{
		"10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.0/24", "10.0.1.0/24", "10.0.1.7/24", "fd00::1/128", "fd00::/64",
	}
)

// Pick returns one of a list.
func Pick[T any](w *World, list []T) T { return list[w.IntN(len(list))] }

// Chance returns true with a probability.
func (w *World) Chance(p float64) bool { return w.Float64() < p }

func (w *World) meta(kind model.Kind) model.Meta {
	w.version++
	m := model.Meta{
		Key:             model.Key{Kind: kind, Namespace: Pick(w, namespaces), Name: Pick(w, names)},
		ResourceVersion: fmt.Sprint(w.version),
	}
	if w.Chance(0.5) { // as if it had been deleted and made again
		m.Created = time.Unix(int64(w.IntN(3)), 0)
	}
	return m
}

func (w *World) visibility(ns string) model.Visibility {
	switch w.IntN(5) {
	case 4:
		return model.Visibility{Public: true}
	case 0:
		return model.Visibility{Private: true, Namespaces: []string{ns}}
	case 1:
		return model.Visibility{Private: true, Namespaces: []string{Pick(w, namespaces)}}
	}
	return model.Visibility{}
}

func (w *World) host() model.Host {
	switch w.IntN(12) {
	case 0:
		return "api.example.com"
	case 1:
		return "*.example.com"
	case 2:
		return "other.example.org"
	case 3:
		return Pick(w, []model.Host{"*", "*.a.svc.cluster.local", "deep.api.example.com"})
	}
	return model.ResolveHost(Pick(w, names), Pick(w, namespaces), "cluster.local")
}

var modes = []model.MTLSMode{model.MTLSUnset, model.MTLSDisable, model.MTLSPermissive, model.MTLSStrict}

func (w *World) peerAuthentication() model.Object {
	p := &model.PeerAuthentication{Meta: w.meta(model.KindPeerAuthentication), Mode: Pick(w, modes)}
	if w.Chance(0.5) {
		p.Selector = w.selector()
		p.Ports = map[uint32]model.MTLSMode{Pick(w, []uint32{8080, 8443, 7000}): Pick(w, modes)}
	}
	return p
}

func (w *World) namespace() model.Object {
	m := w.meta(model.KindNamespace)
	m.Namespace, m.Name = "", Pick(w, namespaces)
	m.Labels = map[string]string{"team": Pick(w, names)}
	return &model.Namespace{Meta: m, Distribution: w.distribution()}
}

func (w *World) meshConfig() model.Object {
	m := w.meta(model.KindMeshConfig)
	m.Namespace, m.Name = Pick(w, namespaces), model.MeshConfigName
	c := &model.MeshConfig{Meta: m}
	if w.Telemetries {
		c.Telemetry = w.meshTelemetry()
	}
	if w.Chance(0.5) {
		mode := Pick(w, []model.OutboundMode{model.OutboundAllowAny, model.OutboundRegistryOnly})
		c.Outbound = &mode
	}
	if w.Chance(0.3) {
		off := false
		c.AutoMTLS, c.TrustDomainAliases = &off, []string{"old.example.org"}
	}
	if w.Chance(0.3) {
		c.Baseline = &model.TrafficPolicy{ConnectionPool: &model.ConnectionPool{MaxConnections: 5}, OutlierDetection: &model.OutlierDetection{}}
	}
	if w.Chance(0.5) {
		c.Locality = w.localityLB()
	}
	if w.Chance(0.3) {
		c.TLSDefaults = &model.TLSDefaults{MinVersion: "TLSv1_3", ECDHCurves: []string{Pick(w, []string{"P-256", "X25519"})}}
	}
	if w.Chance(0.3) {
		yes := true
		c.LocalInbound, c.Headers = &yes, &model.ProxyHeaders{Set: true, NoAttempts: w.Chance(0.5), NoDebug: w.Chance(0.5)}
	}
	c.Authorizers = w.authorizers()
	if w.Chance(0.5) {
		file := "/dev/stdout"
		c.AccessLogFile = &file
	}
	if w.Chance(0.5) {
		c.ExportTo = map[model.Kind][]string{Pick(w, []model.Kind{model.KindService, model.KindVirtualService, model.KindDestinationRule}): {
			Pick(w, []string{"*", ".", "~", "a"}),
		}}
	}
	if w.Chance(0.5) {
		c.Discovery = []model.LabelSelector{
			{Labels: map[string]string{"team": Pick(w, names)}},
			{Expressions: []model.LabelExpression{{
				Key: "team", Operator: Pick(w, []model.LabelOperator{model.LabelIn, model.LabelNotIn}), Values: []string{Pick(w, names)},
			}}},
		}
	}
	return c
}

// Event makes a random event: mostly an object, sometimes the removal of one.
func (w *World) Event() store.Event {
	makers := []func() model.Object{
		w.service, w.serviceEntry, w.slice, w.virtualService, w.destinationRule, w.sidecar, w.node,
		func() model.Object { return w.workload(model.KindPod) },
		func() model.Object { return w.workload(model.KindWorkloadEntry) },
		w.namespace, w.namespace, w.meshConfig, w.drainNotice, w.envoyFilter, w.peerAuthentication,
		w.authorizationPolicy, w.requestAuthentication, w.keySet,
	}
	if w.Secrets {
		makers = append(makers, w.secret, w.configMap, w.credentialRule, w.wasmPlugin, w.backendTLS)
	}
	if w.Telemetries {
		makers = append(makers, w.telemetry)
	}
	if w.Gateways {
		makers = append(makers, w.gateway, w.gateway, w.boundService, w.boundService, w.boundService, w.kubernetesGateway, w.listenerSet, w.ingress, w.ingress, w.ingressClass, w.kubernetesRoute, w.kubernetesRoute, w.referenceGrant)
	}
	o := Pick(w, makers)()
	e := store.Event{Key: o.Metadata().Key, Object: o}
	if w.Chance(0.25) {
		e.Object = nil
	}
	return e
}

// Proxy makes a random proxy.
func (w *World) Proxy() *model.Proxy {
	p := &model.Proxy{
		Type: model.ProxySidecar, Namespace: Pick(w, namespaces), Name: Pick(w, append(names, "client")), IPs: Pick(w, [][]string{{"10.1.0.9"}, {"10.1.0.9"}, {"fd00:1::9"}, {"10.1.0.9", "fd00:1::9"}}),
		Labels:       map[string]string{"app": Pick(w, names), "version": Pick(w, versions)},
		Interception: Pick(w, []model.Interception{model.InterceptRedirect, model.InterceptRedirect, model.InterceptTProxy, model.InterceptNone}),
		Locality:     Pick(w, localities),
		NamedPorts:   w.namedPorts(),
		DNSDomain:    "a.svc.cluster.local",
		IstioVersion: Pick(w, proxyVersions), Metadata: map[string]string{"TEAM": Pick(w, names)},
		ScopedRoutes: w.Chance(0.5), Identity: w.Chance(0.5), Modules: w.Chance(0.7), Files: w.Chance(0.7), Uncounted: w.Chance(0.2), AnyWorker: w.Chance(0.2),
	}
	p.DNSCapture, p.AutoAllocate = w.Chance(0.5), w.Chance(0.2)
	if w.Chance(0.1) {
		p.IPs, p.Labels = nil, map[string]string{}
	}
	if w.Secrets {
		p.ServiceAccount, p.Verified = Pick(w, accounts), w.Chance(0.7)
		p.Names, p.Extensions, p.Modules = w.Chance(0.2), w.Chance(0.2), w.Chance(0.5)
	}
	if w.Gateways && w.Chance(0.6) {
		p.Type = model.ProxyRouter
		p.Labels[model.LabelGatewayName] = Pick(w, names)
	}
	return p
}

// Mesh gives out fewer addresses than there are ServiceEntries now and then.
func Mesh() *model.Mesh {
	m := model.DefaultMesh()
	m.AutoAddresses = model.AutoAddresses{V4: netip.MustParsePrefix("240.0.0.0/29"), V6: netip.MustParsePrefix("2001:2::/125")}
	return m
}

func (w *World) ports() []model.ServicePort {
	var out []model.ServicePort
	for _, n := range []uint32{80, 443, 9000} {
		if w.Chance(0.5) {
			p := model.ServicePort{Name: fmt.Sprintf("p%d", n), Number: n, Protocol: Pick(w, protocols), TargetPort: n + 8000}
			if w.Chance(0.2) {
				p.TargetPort, p.TargetName = 0, Pick(w, []string{"web", "admin"})
			}
			out = append(out, p)
		}
	}
	return out
}

func (w *World) service() model.Object {
	m := w.meta(model.KindService)
	s := &model.Service{
		Meta: m, Hostname: model.ResolveHost(m.Name, m.Namespace, "cluster.local"), Ports: w.ports(),
		Resolution: model.ResolutionStatic, Visibility: w.visibility(m.Namespace), PublishNotReady: w.Chance(0.2), NodeLocal: w.Chance(0.05),
		Distribution: w.distribution(), IPv6First: w.Chance(0.3),
	}
	if w.Chance(0.1) {
		s.Labels = map[string]string{"experimental.istio.io/disable-gateway-port-translation": "true"}
	}
	if w.Chance(0.7) {
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

func (w *World) selector() map[string]string {
	out := map[string]string{"app": Pick(w, names)}
	if w.Chance(0.2) {
		out["version"] = Pick(w, versions)
	}
	if w.Chance(0.1) {
		out[Pick(w, []string{model.LabelZone, model.LabelZone, model.LabelNode})] = Pick(w, []string{"z1", "z2", "x"})
	}
	return out
}

// addresses may have one twice: users may write that.
func (w *World) addresses(most int) []netip.Prefix {
	var out []netip.Prefix
	for range 1 + w.IntN(most) {
		out = append(out, netip.MustParsePrefix(Pick(w, addresses)))
	}
	return out
}

func (w *World) serviceEntry() model.Object {
	m := w.meta(model.KindServiceEntry)
	e := &model.ServiceEntry{Meta: m, Hosts: w.hosts(3)}
	e.Template = model.Service{
		Ports: w.ports(), External: w.Chance(0.5), Visibility: w.visibility(m.Namespace),
		Resolution: Pick(w, []model.Resolution{
			model.ResolutionStatic, model.ResolutionStatic, model.ResolutionDNS, model.ResolutionDNSRoundRobin, model.ResolutionNone,
		}),
	}
	e.Template.Distribution = w.distribution()
	if w.Chance(0.15) {
		e.Hosts, e.Template.Resolution = []model.Host{"*.example.com"}, model.ResolutionDynamicDNS
	}
	if w.Chance(0.5) {
		e.Template.Addresses = w.addresses(3)
	}
	if w.Chance(0.1) {
		e.Labels = map[string]string{model.LabelAutoAddress: "false"}
	}
	for _, h := range e.Hosts {
		if w.Chance(0.3) {
			e.Status = append(e.Status, model.HostAddress{Host: h, Address: netip.AddrFrom4([4]byte{240, 0, 0, byte(w.IntN(8))})})
		}
	}
	switch w.IntN(4) {
	case 0, 1:
		e.Template.Selector = w.selector()
	case 2:
		for range 1 + w.IntN(3) {
			in := model.Endpoint{
				Address: Pick(w, []string{"192.0.2.1", "10.1.0.9", "one.example.net"}), Locality: Pick(w, localities),
				Labels: map[string]string{"version": Pick(w, versions)}, ServiceAccount: Pick(w, append(names, "", "")),
			}
			w.speakMTLS(in.Labels)
			in.Sidecar = model.EntrySpeaksMTLS(in.Labels, in.ServiceAccount)
			e.Template.Inline = append(e.Template.Inline, in)
		}
	}
	return e
}

// hosts are some, each once.
func (w *World) hosts(most int) []model.Host {
	var out []model.Host
	for range 1 + w.IntN(most) {
		if h := w.host(); !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

func (w *World) slice() model.Object {
	s := &model.EndpointSlice{Meta: w.meta(model.KindEndpointSlice), Service: Pick(w, names), PodsListed: w.Chance(0.5)}
	for _, n := range []uint32{80, 443, 9000} {
		if w.Chance(0.8) {
			s.Ports = append(s.Ports, model.SlicePort{Name: fmt.Sprintf("p%d", n), Number: n + Pick(w, []uint32{8000, 8000, 7000})})
		}
	}
	for i := range w.IntN(3) {
		s.Members = append(s.Members, model.SliceEndpoint{
			Addresses: w.podAddresses(1 + w.IntN(9) + i), Ready: w.Chance(0.8), Serving: true,
			Terminating: w.Chance(0.3), Pod: Pick(w, append(names, "")), Node: Pick(w, nodes), Zone: Pick(w, []string{"", "z1"}),
		})
	}
	return s
}

// podAddresses are mostly one, and few have none.
func (w *World) podAddresses(i int) []string {
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

func (w *World) workload(kind model.Kind) model.Object {
	return &model.Workload{
		Meta: func() model.Meta {
			m := w.meta(kind)
			m.Labels = map[string]string{"app": Pick(w, names), "version": Pick(w, versions)}
			w.speakMTLS(m.Labels)
			return m
		}(),
		Addresses: w.podAddresses(Pick(w, []int{1, 2, 3, 4, 5, 9})), Ready: w.Chance(0.8), Terminating: w.Chance(0.2),
		ServiceAccount: Pick(w, append(names, "")),
		Locality:       Pick(w, localities), NamedPorts: w.namedPorts(), Weight: uint32(w.IntN(3)), Node: Pick(w, nodes),
		HostNetwork: kind == model.KindPod && w.Chance(0.1),
	}
}

func (w *World) speakMTLS(labels map[string]string) {
	if w.Chance(0.6) {
		labels[model.LabelTLSMode] = model.TLSModeLabelIstio
	}
}

var nodes = []string{"", "x", "y"}

func (w *World) node() model.Object {
	m := w.meta(model.KindNode)
	m.Namespace = ""
	return &model.Node{Meta: m, Locality: Pick(w, localities)}
}

func (w *World) distribution() model.Distribution {
	if w.Chance(0.8) {
		return model.DistributionUnset
	}
	return Pick(w, []model.Distribution{model.DistributeSameZone, model.DistributeSameNode})
}

func (w *World) drainNotice() model.Object {
	d := &model.DrainNotice{Meta: w.meta(model.KindDrainNotice)}
	for range 1 + w.IntN(2) {
		d.Addresses = append(d.Addresses, Pick(w, []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.9", "192.0.2.1"}))
	}
	return d
}
