package derive

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

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

func (w *world) departure() model.Object {
	d := &model.DrainNotice{Meta: w.meta(model.KindDrainNotice)}
	for range 1 + w.IntN(2) {
		d.Addresses = append(d.Addresses, pick(w, []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.9", "192.0.2.1"}))
	}
	return d
}
