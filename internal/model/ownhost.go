package model

import (
	"net/netip"
	"strings"
)

// IsOwnHost reports whether an endpoint's address reaches the host of the proxy itself, whichever proxy uses it: a Unix socket, a
// loopback, link-local or unspecified address, or a name of these. The address may be a name that no DNS server is asked for.
func IsOwnHost(address string) bool {
	if address == "" {
		return false
	}
	switch address[0] { // most are addresses of Pods, and are not parsed
	case '/', '@':
		return true
	case '1':
		if !strings.HasPrefix(address, "127.") && !strings.HasPrefix(address, "169.254.") && strings.Count(address, ".") == 3 {
			return false
		}
	}
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		ip = ip.Unmap().WithZone("")
		return ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || zeroNetwork.Contains(ip)
	}
	name := strings.ToLower(strings.TrimSuffix(address, "."))
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "localhost" || last == "localdomain" || name == "ip6-localhost" || name == "ip6-loopback" {
		return true
	}
	// Resolvers read names like 127.1 and 0x7f.1 as addresses.
	return last != "" && last[0] >= '0' && last[0] <= '9'
}

// IsLoopback reports whether an address is a loopback address.
func IsLoopback(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Unmap().IsLoopback()
}

// zeroNetwork means this host, as 0.0.0.0 does.
var zeroNetwork = netip.MustParsePrefix("0.0.0.0/8")

// IsOwnPort reports whether a port is one at which Envoy or the agent of each proxy trusts its own host: Envoy's admin interface, and
// the agent's status.
func IsOwnPort(port uint32) bool { return port == 15000 || port == 15020 }
