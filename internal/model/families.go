package model

import "net/netip"

// Families are the IP families that a proxy's workload has addresses of.
type Families uint8

// The families. A proxy that tells no address has IPv4.
const (
	IPv4 Families = iota
	IPv6
	DualStack
)

// String is "ipv4", "ipv6" or "dual-stack".
func (f Families) String() string { return [...]string{"ipv4", "ipv6", "dual-stack"}[f] }

// Families tells what its addresses are of.
func (p *Proxy) Families() Families {
	var four, six bool
	for _, text := range p.IPs {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		is6 := ip.Unmap().Is6()
		four, six = four || !is6, six || is6
	}
	switch {
	case four && six:
		return DualStack
	case six:
		return IPv6
	}
	return IPv4
}
