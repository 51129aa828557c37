package model

import (
	"net/netip"
	"slices"
	"strings"
)

// LabelAutoAddress keeps, with the value "false", a ServiceEntry from having addresses of the mesh.
const LabelAutoAddress = "networking.istio.io/enable-autoallocate-ip"

// AutoAddresses says which addresses ServiceEntries get that have none of their own.
type AutoAddresses struct {
	// Off: only proxies use them that ask for it (Proxy.AutoAllocate), and no status tells them.
	Off    bool
	V4, V6 netip.Prefix // that they are taken from, of each family
}

// DefaultAutoAddresses is Istio's default: a part of class E, which is never routed, and the range for benchmarks of RFC 5180.
func DefaultAutoAddresses() AutoAddresses {
	return AutoAddresses{V4: netip.MustParsePrefix("240.240.0.0/16"), V6: netip.MustParsePrefix("2001:2::/48")}
}

// UsedBy tells whether a proxy's applications are told such addresses, and so connect to them.
func (a *AutoAddresses) UsedBy(p *Proxy) bool {
	return p.DNSCapture && (!a.Off || p.AutoAllocate) && p.Interception != InterceptNone
}

// Of are those of the families of a proxy's addresses.
func (f Families) Of(list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return f != DualStack && a.Is6() != (f == IPv6) })
}

// HostAddress is an address that a host of a ServiceEntry has got.
type HostAddress struct {
	Host    Host
	Address netip.Addr
}

// AutoHosts are the hosts that get addresses of the mesh; none where the entry has its own, wants none, or goes to where
// the client was going. Wildcards are no names that DNS could be asked for, but where requests tell whom they mean.
func (e *ServiceEntry) AutoHosts() []Host {
	t := &e.Template
	if t.Resolution == ResolutionNone || len(t.Addresses) > 0 || strings.EqualFold(e.Labels[LabelAutoAddress], "false") {
		return nil
	}
	if t.Resolution == ResolutionDynamicDNS {
		return e.Hosts
	}
	return slices.DeleteFunc(slices.Clone(e.Hosts), Host.IsWildcard)
}

// Assigned is the first address of a family that the entry's status says a host has; not valid where there is none.
func (e *ServiceEntry) Assigned(h Host, v6 bool) netip.Addr {
	for _, a := range e.Status {
		if a.Host == h && a.Address.Is6() == v6 {
			return a.Address
		}
	}
	return netip.Addr{}
}
