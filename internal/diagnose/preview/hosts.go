package preview

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// servicesOf returns the services among objects, in the order of their hosts.
func servicesOf(objects []model.Object) []*model.Service {
	var out []*model.Service
	for _, o := range objects {
		switch o := o.(type) {
		case *model.Service:
			out = append(out, o)
		case *model.ServiceEntry:
			out = append(out, o.Services()...)
		}
	}
	slices.SortStableFunc(out, func(a, b *model.Service) int { return strings.Compare(string(a.Hostname), string(b.Hostname)) })
	return out
}

// hostsByAddress returns the hosts that lead to an address.
func hostsByAddress(objects []model.Object, services []*model.Service) map[string][]model.Host {
	out := addressHosts{}
	named := map[model.Key]*model.Service{}
	for _, s := range services {
		if s.IsKubernetes() {
			named[s.Key] = s
		}
		for i := range s.Inline {
			out.add(s.Inline[i].Address, s.Hostname)
		}
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *model.EndpointSlice:
			if s := named[model.Key{Kind: model.KindService, Namespace: o.Namespace, Name: o.Service}]; s != nil {
				out.addSlice(o, s.Hostname)
			}
		case *model.Workload:
			out.addWorkload(o, services)
		}
	}
	return out
}

// addressHosts are hosts by an address that they lead to.
type addressHosts map[string][]model.Host

func (a addressHosts) add(address string, h model.Host) {
	if address != "" && !slices.Contains(a[address], h) {
		a[address] = append(a[address], h)
	}
}

func (a addressHosts) addSlice(s *model.EndpointSlice, h model.Host) {
	for i := range s.Members {
		for _, address := range s.Members[i].Addresses {
			a.add(address, h)
		}
	}
}

func (a addressHosts) addWorkload(w *model.Workload, services []*model.Service) {
	for _, s := range services {
		if len(s.Selector) > 0 && s.Namespace == w.Namespace && model.SelectorMatches(s.Selector, w.Labels) {
			a.add(w.Address(), s.Hostname)
		}
	}
}

// target is where a client sends calls of a host and port.
type target struct {
	host     model.Host
	port     uint32
	protocol model.Protocol
	address  string // IP address
}

// targets returns the ports of services that a filter accepts, of both sides, as a proxy calls them.
func (c *comparison) targets(p *model.Proxy, accept func(*model.Service, *model.ServicePort) bool) []target {
	var out []target
	seen := map[target]bool{}
	for _, o := range []*opened{c.after, c.before} {
		for _, s := range o.services {
			for i := range s.Ports {
				port := &s.Ports[i]
				if port.Protocol == model.ProtocolUDP || !accept(s, port) {
					continue
				}
				t := target{host: s.Hostname, port: port.Number, protocol: port.Protocol}
				if !seen[t] {
					seen[t] = true
					t.address, _ = o.names.Address(p, s.Hostname)
					out = append(out, t)
				}
			}
		}
	}
	return out
}

// exact returns a host that a host with a wildcard covers.
func exact(h model.Host) string {
	if h == "*" {
		return "example.com"
	}
	return strings.Replace(string(h), "*", "any", 1)
}
